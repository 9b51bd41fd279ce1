// What the slider says is computed beforehand for the whole table; here it is only looked up.
const threshold = { at: 0, length: "10", listeners: [] };

function atThreshold() {
  const { lengths, at_least: atLeast, users } = data.threshold;
  const sums = lengths[threshold.length];
  const [shown, expected, positive, total] = ["shown", "expected", "positive", "total"].map((name) => sums[name][threshold.at]);
  const longest = threshold.length === "all" ? atLeast.length : Number(threshold.length);
  const reach = [users, ...atLeast.slice(0, longest).map((row) => row[threshold.at])];
  const people = reach.map((value, items) => (items < longest ? value - reach[items + 1] : value));
  return {
    value: data.threshold.grid[threshold.at],
    shown, expected, people, longest,
    precision: shown ? expected / shown : null,
    observed: total ? positive / total : null,
    perUser: shown / users,
    likedPerUser: expected / users,
    pruned: sums.shown[0] - shown,
    lost: sums.expected[0] - expected,
    all: sums.expected[0],
  };
}

function drawThreshold() {
  if (!data.threshold) {
    section("threshold", "What a threshold does", el("p", null, "There is no user column, so lists cannot be shown. Name one with --user (or pass users=...) to see how many users get how many items at a threshold."));
    return;
  }
  const { grid, users, rows, lengths } = data.threshold;
  const listed = lengths[threshold.length].shown;
  threshold.at = Math.max(0, grid.findIndex((_, at) => listed[at] < listed[0] * 0.6)); // something shown, something pruned
  const slider = el("input", { type: "range", id: "slider", min: 0, max: grid.length - 1, step: 1, value: threshold.at });
  const value = el("output", { id: "slider-value", for: "slider" });
  const tiles = [
    ["precision", "expected precision", "The mean probability of what is shown."],
    ["liked", "expected liked items a user", "The sum of shown probabilities over all users, also those who get nothing."],
    ["shown", "items shown", "Pairs at or above the threshold, within the longest list."],
    ["empty", "users who get nothing", "Users with no pair at or above the threshold."],
    ["pruned", "pruned", "Pairs of the lists that fall below the threshold, and the likes expected among them."],
    ["observed", "share really liked", "What the labels say of the pairs shown, by the evidence of this report."],
  ].map(([name, title, why]) => {
    const number = el("b", { id: `t-${name}` });
    const more = el("span", { class: "small", id: `t-${name}-more` });
    return [name, number, more, el("div", { class: "tile" }, explain(el("button", { type: "button", class: "explain" }, title), why), number, more)];
  });
  const tile = Object.fromEntries(tiles.map(([name, number, more]) => [name, (text, small) => { number.textContent = text; more.textContent = small || ""; }]));

  const people = figure("people-figure", drawPeople, "How many users get how many items at this threshold.", () => {
    const now = atThreshold();
    return table(["items", "users"], now.people.map((howMany, items) => [itemsWords(items, now), count(howMany)]), "Users by number of items", "dense");
  });
  const trade = figure("trade-figure", drawTrade, "Precision against plenty: raising the threshold makes what is shown better and less. The upright line is the slider.", () =>
    table(["threshold", "items a user", "expected precision", "expected liked a user"], grid.map((at, row) => {
      const sums = lengths[threshold.length];
      return [percent(at), digits(sums.shown[row] / users, 3), percent(sums.shown[row] ? sums.expected[row] / sums.shown[row] : null), digits(sums.expected[row] / users, 3)];
    }).filter((_, row) => row % 4 === 0), "Precision and plenty", "dense"));

  const itemsWords = (items, now) => (items === now.longest && threshold.length === "all" ? `${items} or more` : String(items));

  function drawPeople(width) {
    const now = atThreshold();
    const [left, top, height] = [58, 20, 200];
    const chart = canvas(width, top + height + 46, `Users by number of items at a threshold of ${percent(now.value)}: ${count(now.people[0])} of ${count(users)} get none. The numbers follow below.`);
    const edges = Array.from({ length: now.people.length + 1 }, (_, at) => at - 0.5);
    const x = linear(-0.5, now.people.length - 0.5, left, width - 8);
    const y = linear(0, Math.max(...now.people, 1), top + height, top);
    chart.append(axisY(y, left, width - 8, count, "users", 4), ...bars(edges, now.people, x, y, "after"));
    const step = now.people.length > 12 && width < 500 ? 5 : now.people.length > 12 ? 2 : 1;
    const ticks = now.people.map((_, at) => at).filter((at) => at % step === 0);
    chart.append(axisX(x, top + height, (tick) => (tick === now.longest && threshold.length === "all" ? `${tick}+` : tick), "items a user gets", ticks));
    const points = now.people.map((howMany, at) => ({ x: x(at), y: y(howMany), lines: [`${itemsWords(at, now)} items`, `${count(howMany)} users (${percent(howMany / users)})`] }));
    hover(chart, (px) => nearest(points, px));
    return chart;
  }

  function drawTrade(width) {
    const sums = lengths[threshold.length];
    const [left, top, height] = [46, 20, 200];
    const chart = canvas(width, top + height + 46, "Expected precision rises and expected liked items a user fall with the threshold. The numbers follow below.");
    const last = Math.max(4, sums.shown.findIndex((value) => value === 0) === -1 ? grid.length - 1 : sums.shown.findIndex((value) => value === 0));
    const x = linear(0, grid[last], left, width - 46);
    const precision = grid.slice(0, last + 1).map((at, row) => [at, sums.shown[row] ? sums.expected[row] / sums.shown[row] : null]).filter(([, each]) => !missing(each));
    const liked = grid.slice(0, last + 1).map((at, row) => [at, sums.expected[row] / users]);
    const y = linear(0, Math.max(...precision.map(([, each]) => each)) * 1.05, top + height, top);
    const most = Math.max(...liked.map(([, each]) => each)) * 1.05 || 1;
    const right = linear(0, most, top + height, top);
    chart.append(axisY(y, left, width - 46, percent, "", 6));
    for (const tick of right.ticks(4)) chart.append(svg("text", { x: width - 40, y: right(tick) + 4, class: "axis-right" }, String(tick)));
    chart.append(line(precision.map(([at, each]) => [x(at), y(each)]), "after"), line(liked.map(([at, each]) => [x(at), right(each)]), "before"));
    const here = x(Math.min(grid[threshold.at], grid[last]));
    chart.append(svg("line", { x1: here, x2: here, y1: top, y2: top + height, class: "cursor" }));
    chart.append(axisX(x, top + height, percent, "threshold"));
    const points = liked.map(([at, each], row) => ({ x: x(at), y: right(each), lines: [`threshold ${percent(at)}`, `expected precision ${percent(sums.shown[row] ? sums.expected[row] / sums.shown[row] : null)}`, `${digits(each, 3)} liked items a user`] }));
    hover(chart, (px) => nearest(points, px));
    return chart;
  }

  function update() {
    const now = atThreshold();
    value.textContent = percent(now.value);
    slider.setAttribute("aria-valuetext", percent(now.value));
    tile.precision(percent(now.precision));
    tile.liked(digits(now.likedPerUser, 3), `of ${digits(now.all / users, 3)} without a threshold`);
    tile.shown(count(now.shown), `${digits(now.perUser, 2)} a user`);
    tile.empty(count(now.people[0]), `${percent(now.people[0] / users)} of ${count(users)}`);
    tile.pruned(count(now.pruned), `with ${count(now.lost)} expected likes`);
    tile.observed(percent(now.observed));
    people.refresh();
    trade.refresh();
    for (const listener of threshold.listeners) listener();
  }

  slider.addEventListener("input", () => {
    threshold.at = Number(slider.value);
    update();
  });
  const options = [...Object.keys(lengths).filter((name) => name !== "all").map((name) => [name, `at most ${name}`]), ["all", "no limit"]];
  section(
    "threshold",
    "What a threshold does",
    el("p", null, `Show an item only if its probability reaches the threshold. The numbers hold for the whole table: ${count(rows)} pairs of ${count(users)} users.`),
    el("div", { class: "controls slider" },
      el("label", { for: "slider" }, "Threshold"), slider, value,
      choose("List length", options, threshold.length, (length) => { threshold.length = length; update(); })),
    el("div", { class: "tiles" }, tiles.map(([, , , node]) => node)),
    el("div", { class: "columns" }, el("div", null, people), el("div", null, key([["after", "expected precision (left)"], ["before", "expected liked items a user (right)"]]), trade)),
  );
  threshold.update = update;
}
