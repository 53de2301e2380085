"use strict";
// "/" goes to the search, j and k to the next and the previous topic; all else is the browser's own.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const rows = [...document.querySelectorAll("a.row")];
  const step = { j: 1, k: -1 }[event.key];
  if (event.key === "/") {
    document.getElementById("search").focus();
  } else if (step && rows.length) {
    const at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))].focus();
  } else {
    return;
  }
  event.preventDefault();
});
