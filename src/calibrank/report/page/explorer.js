function drawExplorer() {
  if (!data.explorer) {
    section("explorer", "Users and their lists", el("p", null, "There is no user column. Name one with --user (and an item column with --item) to look at single users."));
    return;
  }
  const { people, items, users, most } = data.explorer;
  const state = { person: 0, length: 10 };
  const folded = people.map((person) => person.name.toLocaleLowerCase());
  const search = el("input", { type: "search", id: "search", placeholder: "part of an id", autocomplete: "off", spellcheck: "false" });
  const list = el("select", { id: "people", size: 9, "aria-label": "Users" });
  const found = el("p", { class: "small", id: "found", "aria-live": "polite" });
  const detail = el("div", { id: "person" });
  const listed = 200; // options in the box: typing narrows them

  function filter() {
    const wanted = search.value.trim().toLocaleLowerCase();
    const matches = people.map((_, at) => at).filter((at) => folded[at].includes(wanted));
    list.replaceChildren(...matches.slice(0, listed).map((at) => el("option", { value: at, dir: "auto", selected: at === state.person }, people[at].name)));
    const more = matches.length > listed ? `, the first ${listed} listed` : "";
    found.textContent = `${count(matches.length)} of ${count(people.length)} users match${more}.`;
    if (matches.length && !matches.includes(state.person)) {
      state.person = matches[0];
      list.value = String(matches[0]);
      show();
    }
  }

  function show() {
    const person = people[state.person];
    const cut = data.threshold ? data.threshold.grid[threshold.at] : 0;
    const top = person.probabilities.slice(0, state.length);
    const passing = top.filter((probability) => probability >= cut).length;
    const expected = top.filter((probability) => probability >= cut).reduce((sum, probability) => sum + probability, 0);
    const rows = top.map((probability, at) => {
      const kept = probability >= cut;
      const bar = svg("svg", { class: "gauge", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: 100, height: 8, class: "gauge-back" }), svg("rect", { width: 100 * probability, height: 8, class: kept ? "bar after" : "bar cut" }));
      return el(
        "tr",
        { class: kept ? null : "pruned" },
        el("td", null, String(at + 1)),
        el("th", { scope: "row" }, person.items ? nameOf(items[person.items[at]]) : "–"),
        el("td", null, String(person.scores[at])),
        el("td", { class: "probability" }, `${digits(100 * probability, 2)} %`, bar),
        el("td", null, person.labels[at] ? "liked" : ""),
        el("td", null, kept ? "shown" : "pruned"),
      );
    });
    const head = ["#", "item", "score", "probability", "label", `at ${percent(cut)}`].map((heading) => el("th", { scope: "col" }, heading));
    detail.replaceChildren(
      el("h3", null, "User ", nameOf(person.name)),
      el("p", { id: "person-words" }, `${count(person.listed)} pairs in the table. Of the top ${top.length}, ${passing} reach the threshold: ${digits(expected, 2)} likes expected${passing ? `, a precision of ${percent(expected / passing)}` : ""}.`),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Top items of the user" },
        el("table", { class: "list" }, el("caption", null, "The top of this user's list"), el("thead", null, el("tr", null, head)), el("tbody", null, rows))),
    );
  }

  search.addEventListener("input", filter);
  list.addEventListener("change", () => {
    state.person = Number(list.value);
    show();
  });
  const sample = people.length < users
    ? `This page holds ${count(people.length)} of the table's ${count(users)} users, drawn at random, each with the top ${most} pairs; the search finds only these.`
    : `All ${count(users)} users, each with the top ${most} pairs at most.`;
  const wordsOfItems = items.length ? "" : " Name an item column with --item to see what the pairs are.";
  section(
    "explorer",
    "Users and their lists",
    el("p", null, sample + wordsOfItems),
    el("div", { class: "explorer" },
      el("div", { class: "picker" },
        el("label", { for: "search" }, "Search a user"), search, list, found,
        choose("Top", [5, 10, 20].map((length) => [String(length), String(length)]), "10", (length) => { state.length = Number(length); show(); })),
      detail),
  );
  threshold.listeners.push(show);
  filter();
  show();
}
