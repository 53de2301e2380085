"use strict";
// Search, filter and sort what is on this page; all of it can be read without.
(() => {
  const tools = document.getElementById("tools");
  if (!tools) return;
  const search = document.getElementById("search");
  const filters = [...tools.querySelectorAll("select[data-by]")];
  const order = document.getElementById("order");
  const found = tools.querySelector("output");
  const rows = [...document.querySelectorAll("[data-row]")];
  const groups = [...document.querySelectorAll(".group")];
  const shown = (row) => !row.hidden;
  const cut = document.querySelector("[data-cut]") ? " on this page, whose lists are cut; all are in the files below it" : "";
  tools.hidden = false;

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = filters.filter((one) => one.value).map((one) => [one.dataset.by, one.value]);
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.row.includes(word)) ||
        !wanted.every(([by, value]) => row.dataset[by] === value);
    }
    for (const group of groups) {
      const own = [...group.querySelectorAll("[data-row]")];
      const owner = group.dataset.owner;
      // All entries of an owner may be cut: then its name decides, and its heading leads to them.
      const named = words.every((word) => owner.toLowerCase().includes(word)) &&
        wanted.every(([by, value]) => by !== "owner" || value === owner);
      group.hidden = own.length ? !own.some(shown) : !named;
    }
    const filtering = words.length + wanted.length > 0;
    const left = rows.filter(shown);
    found.textContent = filtering ? `${left.length} of ${rows.length} lines${cut}` : "";
    if (filtering) left.forEach((row) => { const folded = row.closest("details.list"); if (folded) folded.open = true; });
  }

  function arrange() {
    const [by, sign] = order.value.split(" ");
    for (const list of document.querySelectorAll(".group .entries")) {
      const value = (row) => Number(row.dataset[by] || (sign === "-1" ? -1 : Infinity));
      [...list.children].sort((a, b) => (value(a) - value(b)) * Number(sign)).forEach((row) => list.append(row));
    }
  }

  for (const head of document.querySelectorAll("table.sortable thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const place = [...head.parentElement.children].indexOf(head);
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const each of head.parentElement.children) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const body = head.closest("table").tBodies[0];
      const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
      const compare = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
      [...body.rows].sort((a, b) => (falling ? compare(b, a) : compare(a, b))).forEach((row) => body.append(row));
    });
  }

  for (const command of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = command.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
      }
    });
    command.append(button);
  }

  search.addEventListener("input", filter);
  filters.forEach((one) => one.addEventListener("change", filter));
  if (order) order.addEventListener("change", arrange);
  tools.addEventListener("submit", (event) => event.preventDefault());

  // "/" goes to the search, j and k to the next and the previous entry, Escape clears.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && document.activeElement === search) {
      search.value = "";
      filter();
      return;
    }
    if (event.target.matches("input, select, textarea")) return;
    const entries = [...document.querySelectorAll(".group .entry")].filter(shown);
    const step = { j: 1, k: -1 }[event.key];
    const at = entries.indexOf(document.activeElement);
    if (event.key === "/") {
      search.focus();
    } else if (step && entries.length) {
      entries[Math.max(0, Math.min(entries.length - 1, at < 0 ? 0 : at + step))].focus();
    } else {
      return;
    }
    event.preventDefault();
  });
})();
