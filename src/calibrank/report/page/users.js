const MOST_OPTIONS = 200; // in the list box; typing narrows them down

function drawUsers() {
  if (!data.user_sample) {
    const text =
      "There is no user column. Name one with --user (and an item column with --item) to look at " +
      "single users.";
    section("users", "Users and their lists", el("p", null, text));
    return;
  }
  const { users } = data.user_sample;
  const state = { user: 0, length: 10 };
  const lowerNames = users.map(({ name }) => name.toLocaleLowerCase());
  const search = el("input", {
    type: "search", id: "search", placeholder: "part of a user id", autocomplete: "off",
    spellcheck: "false",
  });
  const options = el("select", { id: "user-options", size: 9, "aria-label": "Users" });
  const matchCount = el("p", { class: "small", id: "match-count", "aria-live": "polite" });
  const detail = el("div", { id: "user-detail" });
  const show = () => detail.replaceChildren(...userDetail(users[state.user], state.length));

  function filter() {
    const wanted = search.value.trim().toLocaleLowerCase();
    const matches = [...users.keys()].filter((at) => lowerNames[at].includes(wanted));
    const listed = matches.slice(0, MOST_OPTIONS).map((at) => {
      const attributes = { value: at, dir: "auto", selected: at === state.user };
      return el("option", attributes, users[at].name);
    });
    options.replaceChildren(...listed);
    const more = matches.length > MOST_OPTIONS ? `; the first ${MOST_OPTIONS} are listed` : "";
    const found = `${count(matches.length)} of ${count(users.length)} users match`;
    matchCount.textContent = `${found}${more}.`;
    if (matches.length && !matches.includes(state.user)) {
      state.user = matches[0];
      options.value = String(matches[0]);
      show();
    }
  }

  search.addEventListener("input", filter);
  options.addEventListener("change", () => {
    state.user = Number(options.value);
    show();
  });
  const lengths = ["5", "10", "20"].map((length) => [length, length]);
  const lengthControl = choose("Top", lengths, String(state.length), (length) => {
    state.length = Number(length);
    show();
  });
  const label = el("label", { for: "search" }, "Search for a user");
  const picker = el("div", { class: "picker" }, label, search, options, matchCount, lengthControl);
  section(
    "users",
    "Users and their lists",
    el("p", null, sampleText()),
    el("div", { class: "user-browser" }, picker, detail),
  );
  threshold.listeners.push(show);
  filter();
  show();
}

function sampleText() {
  const { users, items, users_in_table: all, list_length: length } = data.user_sample;
  const hint = items.length ? "" : " Name an item column with --item to see the items.";
  if (users.length === all) {
    return `All ${count(all)} users, each with the top ${length} pairs at most.${hint}`;
  }
  return (
    `This page contains ${count(users.length)} of the table's ${count(all)} users, drawn at ` +
    `random, each with the top ${length} pairs. The search finds only these.${hint}`
  );
}

function userDetail(user, length) {
  const minimum = data.thresholds.grid[threshold.index];
  const top = user.probabilities.slice(0, length);
  const shown = top.filter((probability) => probability >= minimum);
  const expected = shown.reduce((sum, probability) => sum + probability, 0);
  const precision = shown.length ? `, a precision of ${percent(expected / shown.length)}` : "";
  const text =
    `${count(user.rows)} pairs in the table. Of the top ${top.length}, ${shown.length} reach the ` +
    `threshold of ${percent(minimum)}: ${digits(expected, 2)} likes expected${precision}.`;
  const headings = ["#", "item", "score", "probability", "label", "at the threshold"];
  const userTable = el(
    "table",
    { class: "list" },
    el("caption", null, "The top of this user's list"),
    el("thead", null, el("tr", null, headings.map(columnHead))),
    el("tbody", null, top.map((_, at) => listRow(user, at, minimum))),
  );
  return [
    el("h3", null, "User ", nameOf(user.name)),
    el("p", { id: "user-text" }, text),
    scrollable("Top items of the user", userTable),
  ];
}

function listRow(user, at, minimum) {
  const probability = user.probabilities[at];
  const isShown = probability >= minimum;
  const item = user.items ? nameOf(data.user_sample.items[user.items[at]]) : "–";
  return el(
    "tr",
    { class: isShown ? null : "hidden-item" },
    el("td", null, String(at + 1)),
    rowHead(item),
    el("td", null, String(user.scores[at])),
    el("td", { class: "probability" }, percent(probability), probabilityBar(probability, isShown)),
    el("td", null, user.labels[at] ? "liked" : ""),
    el("td", null, isShown ? "shown" : "hidden"),
  );
}

function probabilityBar(probability, isShown) {
  const kind = isShown ? "bar primary" : "bar hidden-item";
  const attributes = {
    class: "gauge", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true",
  };
  return svg(
    "svg",
    attributes,
    svg("rect", { width: 100, height: 8, class: "gauge-background" }),
    svg("rect", { width: 100 * probability, height: 8, class: kind }),
  );
}
