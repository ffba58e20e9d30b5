"use strict";

// The page asks /v1/cluster once a second and shows what it says. Text from
// the node only ever becomes text, never markup.

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

// Unknown states are shown without a colour.
const colours = {
  alive: "good", suspect: "warn", failed: "bad", left: "",
  live: "good", fetching: "warn", gap: "warn", stale: "warn", absent: "warn",
  diverged: "bad", quarantine: "bad", dead: "bad",
  yes: "good", no: "", unknown: "warn",
};
const state = (s) => el("span", "state " + (colours[s] ?? ""), s || "–");

// gauge shows a share of a whole, with a mark at the plan when there is one.
function gauge(label, text, share, plan) {
  const bar = el("i", share > 1 || (plan && share > plan) ? "over" : "");
  bar.style.width = Math.min(100, 100 * share) + "%";
  const track = el("div", "track", bar);
  track.setAttribute("role", "img");
  track.setAttribute("aria-label", label + ": " + percent(share));
  if (plan) {
    const mark = el("b");
    mark.style.left = Math.min(99, 100 * plan) + "%";
    mark.title = "plan: " + percent(plan);
    track.append(mark);
  }
  return el("div", "gauge", el("div", "", el("span", "", label), el("span", "", text)), track);
}

function fillList(dl, pairs) {
  dl.replaceChildren(...pairs.flatMap(([name, value, cls]) => [el("dt", "", name), el("dd", cls ?? "", value)]));
}

function list(pairs) {
  const dl = el("dl");
  fillList(dl, pairs);
  return dl;
}

const sum = (o) => Object.values(o).reduce((a, b) => a + b, 0);
const ratio = (a, b) => (b > 0 ? a / b : 0);

// Plots: one value a second, for 15 minutes.
const plotLength = 900;
const plots = { "rps-plot": [], "hits-plot": [] };

function plot(id, value, top) {
  const values = plots[id];
  values.push(value);
  if (values.length > plotLength) values.shift();
  const max = top ?? Math.max(1, ...values.filter((v) => v !== null));
  const from = plotLength - values.length;
  const points = values.flatMap((v, i) => (v === null ? [] : [(from + i) + "," + (98 - (96 * v) / max).toFixed(1)]));
  byId(id).querySelector("polyline").setAttribute("points", points.join(" "));
}

// hits are answers that no origin, shield or peer was asked for.
const ownHits = (r) => (r.hit ?? 0) + (r.stale ?? 0) + (r.negative ?? 0) + (r.catalog ?? 0);

let before = null; // the last answer, with the time it came

function showTraffic(c, now) {
  const total = sum(c.requests);
  const sent = sum(c.peer_rpcs);
  setText("hits", total ? percent(c.hit_ratio) : "–");
  setText("skipped", short(c.rpcs_skipped));
  setText("sent", short(sent));
  if (before && c.uptime_seconds >= before.c.uptime_seconds) {
    const span = (now - before.now) / 1000;
    const more = total - sum(before.c.requests);
    setText("rps", short(more / span));
    setText("skipped-now", short((c.rpcs_skipped - before.c.rpcs_skipped) / span) + " a second");
    setText("sent-now", short((sent - sum(before.c.peer_rpcs)) / span) + " a second");
    const now1 = more > 0 ? (ownHits(c.requests) - ownHits(before.c.requests)) / more : null;
    setText("hits-now", now1 === null ? "since the start" : "since the start; now " + percent(now1));
    plot("rps-plot", more / span);
    plot("hits-plot", now1, 1);
  }
  before = { c, now };
}

function showMembers(c) {
  byId("members").replaceChildren(...c.members.map((m) => {
    const name = el("th", "", m.name + (m.self ? " (this node)" : ""));
    name.scope = "row";
    const r = m.replica;
    const known = !m.self && r.state;
    return el("tr", "",
      name, el("td", "", state(m.state)), el("td", "", m.role), el("td", "", m.peer),
      el("td", "n", percent(m.share_of_ring)),
      el("td", "", known ? state(r.state) : "–"),
      el("td", "n", known ? seconds(r.age_seconds) : "–"),
      el("td", "n", known ? count(r.keys) : "–"),
      el("td", "n", known ? percent(r.fill) : "–"));
  }));
}

function showPartitions(c) {
  byId("partitions").replaceChildren(...c.partitions.map((p) => {
    const f = p.filter, b = p.bloom, s = p.store;
    return el("article", "card",
      el("h3", "", p.name),
      gauge("Store", bytes(s.bytes) + " of " + bytes(s.limit_bytes), ratio(s.bytes, s.limit_bytes)),
      gauge("Filter keys", count(f.keys) + " of " + count(f.capacity_keys), ratio(f.keys, f.capacity_keys)),
      gauge("Filter bits set", percent(f.fill_ratio) + (f.plan_fill_ratio ? ", plan " + percent(f.plan_fill_ratio) : ""), f.fill_ratio, f.plan_fill_ratio),
      list([
        ["Stored responses", count(s.objects)],
        ["Evictions", count(s.evictions)],
        ["Absent at every peer", count(b.negative)],
        ["Maybe, and a peer had it", count(b.positive_hit)],
        ["Maybe, and none had it", count(b.positive_miss)],
        ["Decided without filters", count(b.unknown)],
        ["False positives, expected", rate(f.expected_rate)],
        ["False positives, observed", rate(f.observed_rate), f.observed_rate > 2 * f.expected_rate && b.positive_miss > 100 ? "warn" : ""],
        ["RPCs wasted", rate(ratio(b.positive_miss, b.positive_hit + b.positive_miss))],
        ["Pinned counters", count(f.pinned_counters), f.pinned_counters > 0 ? "warn" : ""],
        ["Epoch, rebuilds", f.epoch + ", " + count(f.rebuilds)],
      ]));
  }));
}

function showRest(c) {
  const n = c.negative;
  byId("negative").replaceChildren(
    gauge("Memory", bytes(n.bytes) + " of " + bytes(n.limit_bytes), ratio(n.bytes, n.limit_bytes)),
    list([["Entries", count(n.entries)], ["Hits", count(n.hits)],
      ...Object.entries(n.refused).map(([why, k]) => ["Refused: " + why.replaceAll("_", " "), count(k)])]));
  const table = (id, counts) => fillList(byId(id), Object.entries(counts).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([k, v]) => [k, count(v)]));
  table("requests", c.requests);
  table("rpcs", c.peer_rpcs);
  byId("catalogs-card").hidden = c.catalogs.length === 0;
  byId("catalogs").replaceChildren(...c.catalogs.map((k) => el("div", "", el("strong", "", k.site), list([
    ["Mode", k.effective + (k.reason ? " (" + k.mode + ", but " + k.reason + ")" : ""), k.reason ? "warn" : ""],
    ["Paths", count(k.paths)], ["Age", seconds(k.age_seconds)],
    ["Would refuse", count(k.would_refuse)], ["Wrong", count(k.wrong), k.wrong ? "bad" : ""],
  ]))));
}

async function ask(path) {
  const r = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  let v;
  try { v = await r.json(); } catch { throw new Error("HTTP status " + r.status); }
  if (!r.ok) throw new Error(v.error ?? "HTTP status " + r.status);
  return v;
}

function link(text, cls) {
  setText("link", text);
  byId("link").className = cls;
  document.documentElement.classList.toggle("stale", cls === "bad");
}

async function poll() {
  try {
    const c = await ask("/v1/cluster");
    setText("name", c.name);
    document.title = c.name + " – edged";
    setText("about", c.role + ", version " + c.version + ", up " + seconds(c.uptime_seconds));
    showTraffic(c, performance.now());
    showMembers(c);
    showPartitions(c);
    showRest(c);
    const ill = c.members.filter((m) => m.state !== "alive" && m.state !== "left").length;
    link(c.draining ? "draining" : ill ? ill + " of " + c.members.length + " members not well" : "all members well", c.draining || ill ? "warn" : "good");
  } catch (err) {
    link("no answer from this node: " + err.message, "bad");
  }
  setTimeout(poll, 1000);
}

function table(heads, rows) {
  const head = el("tr", "", ...heads.map((h) => { const th = el("th", "", h); th.scope = "col"; return th; }));
  return el("div", "scroll", el("table", "", el("thead", "", head),
    el("tbody", "", ...rows.map((cells) => el("tr", "", ...cells.map((c) => el("td", "", c)))))));
}

function showExplanation(e) {
  const parts = [
    el("p", "would", e.would),
    list([["Method", e.method], ["Key", el("code", "", e.key)], ["Hash", el("code", "", e.hash)], ["Site", e.site], ["Partition", e.partition], ["Owner on the ring", e.owner || "–"]]),
    table(["Step", "Result", "Rule"], e.steps.map((s) => [s.name, s.result, s.rule])),
  ];
  if (e.stored.length) {
    parts.push(table(["Stored", "Status", "Variant", "Age", "Fresh for", "Size", "Tags"], e.stored.map((s) => [
      (s.negative ? "negative entry" : "response") + (s.matches ? ", matches" : ""), s.status, s.variant || "–",
      seconds(s.age_seconds), s.ttl_seconds >= 0 ? seconds(s.ttl_seconds) : "stale for " + seconds(-s.ttl_seconds), bytes(s.bytes), s.tags.join(" ") || "–"])));
  }
  if (e.filters.length) parts.push(table(["Member", "Its filter says"], e.filters.map((f) => [f.member, state(f.says)])));
  byId("explanation").replaceChildren(...parts);
}

byId("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  const q = new URLSearchParams({ url: byId("url").value });
  for (const line of byId("fields").value.split("\n")) if (line.trim()) q.append("header", line.trim());
  try {
    showExplanation(await ask("/v1/explain?" + q));
  } catch (err) {
    byId("explanation").replaceChildren(el("p", "bad", err.message));
  }
});

poll();
