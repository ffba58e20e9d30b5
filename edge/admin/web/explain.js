"use strict";

// The form that asks /v1/explain. The sentence that answers is read out; the
// rest stands below it.

function storedRow(s) {
  return [
    s.status + (s.negative ? ", negative entry" : ", response"),
    s.matches ? "selected" : "no match",
    s.variant || "–",
    seconds(s.age_seconds),
    s.ttl_seconds > 0 ? el("span", "good", "fresh for " + seconds(s.ttl_seconds)) : el("span", "warn", "stale" + (s.ttl_seconds < 0 ? " for " + seconds(-s.ttl_seconds) : "")),
    bytes(s.bytes),
    s.tags.join(" ") || "–",
  ];
}

function showExplanation(e) {
  const steps = el("ol", "steps", ...e.steps.map((s) => el("li", "", el("strong", "", s.name), el("span", "", s.result), el("em", "", s.rule))));
  steps.append(el("li", "last", el("strong", "", "so"), el("span", "", e.would), el("em", "")));
  const parts = [
    steps,
    list([["Request", e.method + " " + e.url], ["Key", el("code", "", e.key)], ["Hash", el("code", "", e.hash)], ["Site", e.site], ["Partition", e.partition], ["Owner on the ring", e.owner || "–"]]),
  ];
  parts.push(e.stored.length
    ? table("Stored under this key", ["What", "This request", "Variant", "Age", "Freshness", "Size", "Tags"], e.stored.map(storedRow))
    : el("p", "note", "Nothing is stored under this key here."));
  parts.push(e.filters.length
    ? table("What the peers' filters say", ["Member", "May have it"], e.filters.map((f) => [f.member, state(f.says)]))
    : el("p", "note", "There is no peer."));
  byId("explanation").replaceChildren(...parts);
}

byId("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  const q = new URLSearchParams({ url: byId("url").value, method: byId("method").value });
  for (const line of byId("fields").value.split("\n")) if (line.trim()) q.append("header", line.trim());
  const would = byId("would");
  try {
    const e = await ask("/v1/explain?" + q);
    would.className = "would";
    would.textContent = e.would;
    showExplanation(e);
  } catch (err) {
    would.className = "would bad";
    would.textContent = err.message;
    byId("explanation").replaceChildren();
  }
});
