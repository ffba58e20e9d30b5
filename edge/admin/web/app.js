"use strict";

// The page watches /v1/stream: the last 15 minutes first, then the state once
// a second. One voice speaks to screen readers: the line "link", which changes
// only when something does.

const sum = (o) => Object.values(o).reduce((a, b) => a + b, 0);
const ratio = (a, b) => (b > 0 ? a / b : 0);

function showTraffic(c) {
  const s = c.now, busy = (f) => (x) => (x.rps > 0 ? f(x) : null);
  setText("rps", short(s.rps));
  setText("hits", sum(c.requests) ? percent(c.hit_ratio) : "–");
  setText("p50", milliseconds(s.p50_ms));
  setText("p99", milliseconds(s.p99_ms));
  setText("skipped", short(c.rpcs_skipped));
  setText("saved", c.saved_seconds > 0 ? "saved " + seconds(c.saved_seconds) + " of waiting" : "");
  setText("skipped-now", short(s.skipped));
  setText("sent-now", short(s.sent));
  if (document.hidden) return; // nobody looks; the samples are kept
  setText("rps-key", "at most " + short(plot("rps-plot", [(x) => x.rps], { peak: true })) + " in the last " + Math.ceil(pastSpan() / 60) + " min");
  plot("hits-plot", [busy((x) => x.own), busy((x) => x.absent), busy((x) => x.peer), busy((x) => x.shield + x.origin)], { top: 1, stacked: true });
  setText("latency-key", "at most " + milliseconds(plot("latency-plot", [(x) => x.p50_ms || null, (x) => x.p99_ms || null], { peak: true })));
  plot("rpcs-plot", [(x) => x.skipped, (x) => x.sent], { peak: true });
}

function showMembers(c) {
  drawRing(c.members);
  replace(byId("members"), ...c.members.map((m, i) => {
    const name = el("th", "", i + 1 + ". " + m.name, el("span", "under", (m.self ? "this node, " : "") + m.role + ", " + m.peer));
    name.scope = "row";
    const r = m.replica, known = !m.self && r.state, s = m.summary?.now;
    const n = (text) => el("td", "n", text);
    return el("tr", m.state === "failed" ? "failed" : "",
      name, el("td", "", state(m.state)), n(percent(m.share_of_ring)),
      n(s ? short(s.rps) : "–"),
      el("td", "", s && s.rps > 0 ? shares([["own store", s.own], ["absence", s.absent], ["peer", s.peer], ["shield or origin", s.shield + s.origin]]) : "–"),
      n(s ? milliseconds(s.p50_ms) : "–"), n(s ? milliseconds(s.p99_ms) : "–"),
      n(m.summary ? percent(ratio(m.summary.stored_bytes, m.summary.limit_bytes), 0) : "–"),
      known ? el("td", "", state(r.state), " " + seconds(r.age_seconds)) : el("td", "", "–"),
      n(known ? count(r.keys) : "–"));
  }));
}

// Of more members than this, a cell shows the state alone.
const roomForAges = 16;

function showMatrix(c) {
  const names = c.members.map((m) => m.name);
  const corner = el("th", "", "holder");
  corner.scope = "col";
  const head = el("tr", "", corner, ...names.map((name, i) => { const th = el("th", "", names.length > roomForAges ? i + 1 : name); th.scope = "col"; th.title = name; return th; }));
  const rows = c.members.map((m) => {
    const th = el("th", "", m.name);
    th.scope = "row";
    const held = m.summary && new Map(m.summary.holds.map((h) => [h.member, h]));
    return el("tr", "", th, ...names.map((name) => {
      if (name === m.name) return el("td", "self", "·");
      const h = held?.get(name);
      if (!h) return el("td", "", held ? "–" : "?");
      const cell = el("td", "", state(h.state));
      if (names.length > roomForAges) cell.classList.add("narrow");
      else cell.append(" " + seconds(h.age_seconds));
      cell.title = m.name + " holds " + name + ": " + h.state + ", " + seconds(h.age_seconds);
      return cell;
    }));
  });
  replace(byId("matrix"), el("thead", "", head), el("tbody", "", ...rows));
}

function showPartitions(c) {
  replace(byId("partitions"), ...c.partitions.map((p) => {
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
  replace(byId("negative"),
    gauge("Memory", bytes(n.bytes) + " of " + bytes(n.limit_bytes), ratio(n.bytes, n.limit_bytes)),
    list([["Entries", count(n.entries)], ["Hits", count(n.hits)],
      ...Object.entries(n.refused).map(([why, k]) => ["Refused: " + why.replaceAll("_", " "), count(k)])]));
  const counted = (id, counts) => fillList(byId(id), Object.entries(counts).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([k, v]) => [k, count(v)]));
  counted("requests", c.requests);
  counted("rpcs", c.peer_rpcs);
  fillList(byId("purges"), [["In flight from this node", count(c.purges_in_flight), c.purges_in_flight > 0 ? "warn" : ""],
    ["Knows of all", c.purge_log === "synced" ? "yes" : "not for certain: " + c.purge_log, c.purge_log === "synced" ? "" : "warn"]]);
  replace(byId("origins"), ...c.origins.map((o) => el("div", "", el("strong", "", o.url), list([
    ["Of site", o.site], ["State", o.healthy ? "in use" : "skipped for its failures", o.healthy ? "" : "bad"],
    ["Requests", count(o.attempts)], ["Failed", count(o.failures)], ["In flight", count(o.in_flight)],
  ]))));
  byId("catalogs-card").hidden = c.catalogs.length === 0;
  replace(byId("catalogs"), ...c.catalogs.map((k) => el("div", "", el("strong", "", k.site), list([
    ["Mode", k.effective + (k.reason ? " (" + k.mode + ", but " + k.reason + ")" : ""), k.reason ? "warn" : ""],
    ["Paths", count(k.paths)], ["Age", seconds(k.age_seconds)],
    ["Would refuse", count(k.would_refuse)], ["Wrong", count(k.wrong), k.wrong ? "bad" : ""],
  ]))));
}

function link(text, cls) {
  setText("link", text);
  byId("link").className = cls;
}

// notice says why the page does not move; "" when it does.
function notice(text) {
  byId("notice").hidden = text === "";
  setText("notice", text);
  document.documentElement.classList.toggle("stale", text !== "");
}

function show(c) {
  setText("name", c.name);
  document.title = c.name + " – edged";
  setText("about", c.role + ", version " + c.version + ", up " + seconds(c.uptime_seconds));
  showTraffic(c);
  showMembers(c);
  showMatrix(c);
  showPartitions(c);
  showRest(c);
  const ill = c.members.filter((m) => m.state !== "alive" && m.state !== "left");
  const dead = ill.some((m) => m.state === "failed");
  link(c.draining ? "draining" : ill.length ? ill.map((m) => m.name + " " + m.state).slice(0, 3).join(", ") + (ill.length > 3 ? " and " + (ill.length - 3) + " more" : "") : "all " + c.members.length + " members well",
    dead ? "bad" : c.draining || ill.length ? "warn" : "good");
}

// once shows the state as it is, where there is no stream.
async function once(why) {
  try {
    show(await ask("/v1/cluster"));
    notice(why + " What is shown is from " + new Date().toLocaleTimeString() + ".");
  } catch (err) {
    link("no answer", "bad");
    notice("This node does not answer (" + err.message + "). Trying again.");
  }
}

const retryAfter = 2000, silence = 5000; // milliseconds

function watch() {
  if (!("EventSource" in window)) {
    once("This browser has no server-sent events, so the page does not move: reload it to see more.");
    return;
  }
  const source = new EventSource("/v1/stream");
  let timer;
  const again = () => {
    clearTimeout(timer);
    source.close();
    once("Live updates are interrupted.").finally(() => setTimeout(watch, retryAfter));
  };
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(again, silence);
  };
  alive();
  source.addEventListener("error", again);
  source.addEventListener("history", (event) => {
    alive();
    const h = JSON.parse(event.data);
    past.span = h.span_seconds;
    past.samples = h.samples;
  });
  source.addEventListener("state", (event) => {
    alive();
    const c = JSON.parse(event.data);
    remember(c.now);
    notice("");
    show(c);
  });
}

watch();
