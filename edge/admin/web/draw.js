"use strict";

// Plots, gauges and the ring, as SVG.

function svg(tag, attributes) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// The last 15 minutes: one sample a second, from the node's own memory.
const past = { span: 900, samples: [] };

function remember(sample) {
  const last = past.samples.at(-1);
  if (last && sample.at <= last.at) return;
  past.samples.push(sample);
  while (past.samples.length && past.samples[0].at <= sample.at - past.span) past.samples.shift();
}

// plot draws series of (sample) => number over the past, from the bottom up: as
// lines, or stacked as areas. A second without a value is a gap. Neighbouring
// seconds share a point: their mean, or the largest where peaks matter.
const mostPoints = 180;

// pastSpan is how many seconds the plots show: what there is, from a minute to
// the whole.
const pastSpan = () => Math.min(past.span, Math.max(60, (past.samples.at(-1)?.at ?? 0) - (past.samples[0]?.at ?? 0) + 1));

function plot(id, series, { top, stacked = false, peak = false } = {}) {
  const plotPoints = Math.min(mostPoints, pastSpan());
  const root = byId(id), end = past.samples.at(-1)?.at ?? 0, per = pastSpan() / plotPoints;
  const rows = series.map(() => Array(plotPoints).fill(null)), n = Array(plotPoints).fill(0);
  for (const s of past.samples) {
    const i = plotPoints - 1 - Math.floor((end - s.at) / per);
    if (i < 0) continue;
    const values = series.map((f) => f(s));
    if (values.includes(null)) continue;
    n[i]++;
    values.forEach((v, k) => { rows[k][i] = peak ? Math.max(rows[k][i] ?? 0, v) : (rows[k][i] ?? 0) + v; });
  }
  if (!peak) rows.forEach((row) => row.forEach((v, i) => { if (v !== null) row[i] = v / n[i]; }));
  const most = Math.max(...rows.flat().filter((v) => v !== null), 0);
  const max = top ?? (most || 1);
  const y = (v) => (99 - (97 * Math.min(v, max)) / max).toFixed(1);
  root.setAttribute("viewBox", "0 0 " + (plotPoints - 1) + " 100");
  root.setAttribute("preserveAspectRatio", "none");
  while (root.children.length > 1) root.lastChild.remove(); // the title stays
  const below = Array(plotPoints).fill(0);
  rows.forEach((row, k) => {
    for (const run of runs(row)) {
      const cls = (stacked ? "area" : "line") + " s" + (series.length === 1 ? 1 : [1, 2, 3, 4].at(stacked ? k : 3 * k));
      if (stacked) {
        const up = run.map((i) => i + "," + y(below[i] + row[i])), down = run.toReversed().map((i) => i + "," + y(below[i]));
        root.append(svg("polygon", { class: cls, points: [...up, ...down].join(" ") }));
        run.forEach((i) => { below[i] += row[i]; });
      } else {
        if (run.length === 1) run.push(run[0]); // a point, as a dot
        root.append(svg("polyline", { class: cls, points: run.map((i) => i + "," + y(row[i])).join(" ") }));
      }
    }
  });
  return most;
}

// runs are the stretches of a row that have values, as lists of places.
function runs(row) {
  const all = [];
  let run = [];
  row.forEach((v, i) => {
    if (v !== null) run.push(i);
    if ((v === null || i === row.length - 1) && run.length) { all.push(run); run = []; }
  });
  return all;
}

// gauge shows a share of a whole, with a mark at the plan when there is one.
function gauge(label, text, share, plan) {
  const bar = svg("rect", { x: 0, y: 0, height: 8, width: (100 * Math.min(1, share)).toFixed(1), class: share > 1 || (plan && share > plan) ? "over" : "bar" });
  const track = svg("svg", { class: "track", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label + ": " + percent(share) + (plan ? ", plan " + percent(plan) : "") });
  track.append(bar);
  if (plan) track.append(svg("rect", { x: Math.min(99.3, 100 * plan).toFixed(1), y: 0, height: 8, width: 0.7, class: "mark" }));
  return el("div", "gauge", el("div", "", el("span", "", label), el("span", "", text)), track);
}

// shares is a bar of parts of a whole, each with its name for who can't see it.
function shares(parts) {
  const root = svg("svg", { class: "track", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img",
    "aria-label": parts.map(([name, v]) => name + " " + percent(v, 0)).join(", ") });
  let x = 0;
  parts.forEach(([name, v], i) => {
    const r = svg("rect", { x: (100 * x).toFixed(1), y: 0, height: 8, width: (100 * v).toFixed(1), class: "f" + (i + 1) });
    const t = svg("title", {});
    t.textContent = name + ": " + percent(v);
    r.append(t);
    root.append(r);
    x += v;
  });
  return root;
}

// drawRing draws each member as an arc as long as its share; those without one,
// as a failed member or a shield, get a short arc that shows their state.
function drawRing(members) {
  const root = byId("ring"), least = 0.035;
  const parts = members.map((m) => Math.max(m.share_of_ring, least)), total = parts.reduce((a, b) => a + b, 0);
  const at = (turn, r) => (r * Math.sin(2 * Math.PI * turn)).toFixed(2) + " " + (-r * Math.cos(2 * Math.PI * turn)).toFixed(2);
  const arcs = [];
  let from = 0;
  members.forEach((m, i) => {
    const to = from + parts[i] / total, mid = (from + to) / 2, gap = members.length > 1 ? Math.min(0.004, (to - from) / 5) : 0.0005;
    const a = from + gap, b = to - gap;
    const arc = svg("path", { class: "arc " + (colours[m.state] || "none"), d: "M " + at(a, 84) + " A 84 84 0 " + (b - a > 0.5 ? 1 : 0) + " 1 " + at(b, 84) });
    const title = svg("title", {});
    title.textContent = m.name + ": " + m.state + ", " + percent(m.share_of_ring) + " of the ring";
    arc.append(title);
    arcs.push(arc);
    if (members.length <= 24) {
      const [x, y] = at(mid, 84).split(" ");
      const label = svg("text", { x, y, class: "in " + (colours[m.state] || "none") });
      label.textContent = i + 1;
      arcs.push(label);
    }
    from = to;
  });
  const well = members.filter((m) => m.state === "alive").length;
  const big = svg("text", { x: 0, y: -4, class: "ring-big" }), small = svg("text", { x: 0, y: 18, class: "ring-small" });
  big.textContent = well + " of " + members.length;
  small.textContent = "alive";
  replace(root, root.querySelector("title"), ...arcs, big, small);
}
