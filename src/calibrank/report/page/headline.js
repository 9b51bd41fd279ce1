function drawHeadline() {
  const { sentences, verdict, door, unknown, how } = data.headline;
  const said = el("p", { class: "lead", id: "sentence", "aria-live": "polite" });
  const source = el("p", { class: "small", id: "sentence-source" });
  const say = (one) => {
    said.replaceChildren(
      "Of ", el("b", null, count(one.per)), " items shown at ", el("b", null, percent(one.level)), ", ",
      el("b", null, `${count(one.low)} to ${count(one.high)}`), " are liked.",
    );
    source.textContent = `From ${count(one.rows)} rows predicted ${percent(one.from)} to ${percent(one.to)}; 95 % interval.`;
  };
  say(sentences[0]);
  const levels = sentences.slice().sort((one, two) => one.level - two.level);
  const pick = switches(
    "Shown at",
    levels.map((one) => [String(one.level), percent(one.level)]),
    String(sentences[0].level),
    (level) => say(levels.find((one) => String(one.level) === level)),
  );
  section(
    "headline",
    "In short",
    el("div", { class: "hero" }, said, source, levels.length > 1 ? pick : null),
    el(
      "div",
      { class: "cards" },
      el(
        "div",
        { class: `card tone-${verdict.tone}` },
        el("h3", null, "Verdict"),
        el("p", { class: "strong", id: "verdict" }, verdict.title),
        el("ul", null, verdict.facts.map((fact) => el("li", null, fact))),
      ),
      el(
        "div",
        { class: `card tone-${door.known ? "plain" : "warn"}` },
        el("h3", null, "Where the base rate comes from"),
        el("p", { class: "strong" }, door.name),
        el("p", { id: "door" }, door.words),
      ),
      el(
        "div",
        { class: "card tone-plain" },
        el("h3", null, "What is not known"),
        el("ul", { id: "unknown" }, unknown.map((one) => el("li", null, one))),
      ),
    ),
    el("p", { class: "small" }, how),
  );
}
