function drawHeadline() {
  const { sentences, verdict, base_rate_source: source, limitations } = data.headline;
  section(
    "headline",
    "Summary",
    el("p", { class: "lead", id: "average-error" }, verdict.error),
    sentenceSwitcher(sentences),
    el(
      "div",
      { class: "cards" },
      verdictCard(verdict),
      sourceCard(source),
      limitationsCard(limitations),
    ),
  );
}

// What a probability means in counts, with buttons for the other probabilities.
function sentenceSwitcher(sentences) {
  const lead = el("p", { class: "strong", id: "sentence", "aria-live": "polite" });
  const basis = el("p", { class: "small", id: "sentence-basis" });
  const bold = (text) => el("b", null, text);
  const show = (sentence) => {
    const { out_of: outOf, probability, low, high } = sentence;
    const range = `${count(low)} to ${count(high)}`;
    lead.replaceChildren(
      "Of ", bold(count(outOf)), " items given ", bold(percent(probability)), ", ",
      bold(range), " are liked.",
    );
    const lowest = percent(sentence.lowest_prediction);
    const highest = percent(sentence.highest_prediction);
    basis.textContent =
      `95% interval, from ${count(sentence.rows)} rows given ${lowest} to ${highest}.`;
  };
  show(sentences[0]);
  const ordered = sentences.slice().sort((one, two) => one.probability - two.probability);
  const options = ordered.map(({ probability }) => [String(probability), percent(probability)]);
  const chosen = String(sentences[0].probability);
  const change = (value) => show(ordered.find((one) => String(one.probability) === value));
  const control = ordered.length > 1 ? switches("Items given", options, chosen, change) : null;
  return el("div", { class: "hero" }, lead, basis, control);
}

const list = (texts, attributes) =>
  el("ul", attributes, texts.map((text) => el("li", null, text)));

function card(tone, title, ...children) {
  return el("div", { class: `card tone-${tone}` }, el("h3", null, title), children);
}

function verdictCard({ tone, title, facts }) {
  const strong = el("p", { class: "strong", id: "verdict" }, title);
  return card(tone, "Verdict", strong, list(facts, { id: "facts" }));
}

function sourceCard({ identified, title, text }) {
  const tone = identified ? "plain" : "warning";
  const heading = el("p", { class: "strong" }, title);
  return card(tone, "Source of the base rate", heading, el("p", { id: "base-rate-source" }, text));
}

function limitationsCard(limitations) {
  return card("plain", "Limitations", list(limitations, { id: "limitations" }));
}
