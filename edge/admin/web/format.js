"use strict";

// Numbers as people read them, and the making of elements. Text from the node
// only ever becomes text, never markup.

const byId = (id) => document.getElementById(id);

// el makes an element: its class, then children, which are text or elements.
function el(tag, cls, ...children) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  e.append(...children.map((c) => (c instanceof Node ? c : String(c))));
  return e;
}

function setText(id, text) {
  const e = byId(id);
  if (e.textContent !== text) e.textContent = text;
}

// Replaced only when it differs: a selection, the focus and what a screen
// reader reads stay where they are while nothing changes.
const shown = new WeakMap();
function replace(e, ...children) {
  const next = children.map((c) => c.outerHTML).join("");
  if (shown.get(e) === next) return;
  shown.set(e, next);
  e.replaceChildren(...children);
}

const whole = new Intl.NumberFormat("en");
const count = (n) => whole.format(Math.round(n));
const percent = (x, digits = 1) => (100 * x).toFixed(digits) + " %";
// A false-positive rate may be very small: two digits that mean something.
const rate = (x) => (x === 0 ? "0 %" : Number((100 * x).toPrecision(2)) + " %");

function short(n) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (n >= size) return (n / (unit === "k" ? 1e3 : size)).toFixed(n >= 10 * size ? 0 : 1) + " " + unit;
  }
  return n >= 100 || Number.isInteger(n) ? count(n) : n.toFixed(1);
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

function seconds(s) {
  if (s < 1) return (1000 * s).toFixed(0) + " ms";
  if (s < 60) return s.toFixed(1) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

const milliseconds = (ms) => (ms === 0 ? "–" : ms < 10 ? Number(ms.toPrecision(2)) + " ms" : seconds(ms / 1000));

// Unknown states are shown without a colour.
const colours = {
  alive: "good", suspect: "warn", failed: "bad", left: "",
  live: "good", fetching: "warn", gap: "warn", stale: "warn", absent: "warn",
  diverged: "bad", quarantine: "bad", dead: "bad",
  yes: "good", no: "", unknown: "warn",
};
const state = (s) => el("span", "state " + (colours[s] ?? ""), s || "–");

function fillList(dl, pairs) {
  replace(dl, ...pairs.flatMap(([name, value, cls]) => [el("dt", "", name), el("dd", cls ?? "", value)]));
}

function list(pairs) {
  const dl = el("dl");
  dl.append(...pairs.flatMap(([name, value, cls]) => [el("dt", "", name), el("dd", cls ?? "", value)]));
  return dl;
}

function table(caption, heads, rows) {
  const head = el("tr", "", ...heads.map((h) => { const th = el("th", "", h); th.scope = "col"; return th; }));
  const t = el("table", "", el("caption", "", caption), el("thead", "", head),
    el("tbody", "", ...rows.map((cells) => el("tr", "", ...cells.map((c) => el("td", "", c))))));
  const box = el("div", "scroll", t);
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", caption);
  return box;
}

async function ask(path) {
  const r = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  let v;
  try { v = await r.json(); } catch { throw new Error("HTTP status " + r.status); }
  if (!r.ok) throw new Error(v.error ?? "HTTP status " + r.status);
  return v;
}
