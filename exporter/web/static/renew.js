"use strict";
// Renews the page as often as <main data-renew="SECONDS"> says, and leaves focus, scroll position and selection alone.
const main = document.getElementById("main");
const places = () => [...main.querySelectorAll(".scroll")];
const focusable = () => [...main.querySelectorAll("a, [tabindex]")];
const name = (one) => one.href || one.getAttribute("aria-label");

function show(fresh) {
  const focused = main.contains(document.activeElement) ? name(document.activeElement) : null;
  const scrolled = new Map(places().map((one) => [name(one), one.scrollLeft]));
  main.replaceChildren(...fresh.getElementById("main").childNodes);
  document.querySelector("footer").replaceWith(fresh.querySelector("footer"));
  for (const place of places()) place.scrollLeft = scrolled.get(name(place)) ?? 0;
  if (focused) focusable().find((one) => name(one) === focused)?.focus({ preventScroll: true });
}

async function renew() {
  const selection = document.getSelection();
  if (document.hidden || (!selection.isCollapsed && main.contains(selection.anchorNode))) return;
  let fresh = null;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout?.(10_000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // A proxy may answer with a page of its own, such as one to log in.
    if (answer.ok && page.querySelector("#main[data-renew]") && page.querySelector("footer")) fresh = page;
  } catch {
    // As with an answer that is none: the next time it may be there.
  }
  document.getElementById("stale").hidden = fresh !== null;
  if (fresh) show(fresh);
}

setInterval(renew, 1000 * main.dataset.renew);
document.addEventListener("visibilitychange", renew);
