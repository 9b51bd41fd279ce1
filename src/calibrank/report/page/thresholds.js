// The numbers of every threshold are computed in Python for the whole table and looked up here.
const threshold = { index: 0, length: "10", listeners: [] };

function drawThresholds() {
  if (!data.thresholds) {
    const text =
      "There is no user column, so there are no lists. Name one with --user (or pass users=...) " +
      "to see how many users get how many items at a threshold.";
    section("thresholds", "Threshold", el("p", null, text));
    return;
  }
  const { grid, users, rows, lengths } = data.thresholds;
  threshold.index = initialThreshold();
  const slider = el("input", {
    type: "range", id: "slider", min: 0, max: grid.length - 1, step: 1, value: threshold.index,
  });
  const output = el("output", { id: "slider-value", for: "slider" });
  const tiles = makeTiles();
  const usersChart = figure(
    "list-length-figure",
    listLengthChart,
    "How many users get how many items at this threshold.",
    listLengthTable,
  );
  const tradeoffChart = figure(
    "tradeoff-figure",
    tradeoffChartAt,
    "A higher threshold makes lists more precise and shorter. The vertical line marks the slider.",
    tradeoffTable,
  );

  threshold.update = () => {
    const now = atThreshold();
    const text = percent(now.probability);
    output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
    showTiles(tiles, now);
    usersChart.refresh();
    tradeoffChart.refresh();
    for (const listener of threshold.listeners) listener();
  };
  slider.addEventListener("input", () => {
    threshold.index = Number(slider.value);
    threshold.update();
  });
  const limits = Object.keys(lengths).filter((name) => name !== "all");
  const options = [...limits.map((name) => [name, `at most ${name}`]), ["all", "no limit"]];
  const lengthControl = choose("List length", options, threshold.length, (length) => {
    threshold.length = length;
    threshold.update();
  });
  const label = el("label", { for: "slider" }, "Threshold");
  const introduction =
    "Show an item only if its probability reaches the threshold. The numbers are exact for the " +
    `whole table: ${count(rows)} pairs of ${count(users)} users.`;
  const tradeoffLegend = legend([
    ["primary", "expected precision (left axis)"],
    ["secondary", "expected liked items per user (right axis)"],
  ]);
  section(
    "thresholds",
    "Threshold",
    el("p", null, introduction),
    el("div", { class: "controls slider" }, label, slider, output, lengthControl),
    el("div", { class: "tiles" }, tiles.map(({ node }) => node)),
    el(
      "div",
      { class: "columns" },
      el("div", null, usersChart),
      el("div", null, tradeoffLegend, tradeoffChart),
    ),
  );
}

// The first threshold that hides 40% of the items: some are shown and some are not.
function initialThreshold() {
  const { items } = data.thresholds.lengths[threshold.length];
  return Math.max(0, items.findIndex((value) => value < items[0] * 0.6));
}

const precisionAt = (sums, index) =>
  sums.items[index] ? sums.expected_positives[index] / sums.items[index] : null;

function atThreshold() {
  const { grid, lengths, users, users_with_at_least: atLeast } = data.thresholds;
  const { index, length } = threshold;
  const sums = lengths[length];
  const longest = length === "all" ? atLeast.length : Number(length);
  const reached = [users, ...atLeast.slice(0, longest).map((row) => row[index])];
  const usersByItems = reached.map((value, items) =>
    items < longest ? value - reached[items + 1] : value,
  );
  const total = sums.total[index];
  return {
    probability: grid[index],
    items: sums.items[index],
    usersByItems,
    longest,
    precision: precisionAt(sums, index),
    observedPrecision: total ? sums.positive[index] / total : null,
    likedPerUser: sums.expected_positives[index] / users,
    likedPerUserWithout: sums.expected_positives[0] / users,
    hiddenItems: sums.items[0] - sums.items[index],
    hiddenPositives: sums.expected_positives[0] - sums.expected_positives[index],
  };
}

// ----- tiles -----
const TILES = [
  ["precision", "expected precision", "The mean probability of the items shown."],
  [
    "liked",
    "expected liked items per user",
    "The sum of the probabilities shown, divided by all users, including those without items.",
  ],
  ["items", "items shown", "Pairs at or above the threshold, within the maximum list length."],
  ["empty", "users without items", "Users with no pair at or above the threshold."],
  [
    "hidden",
    "items hidden",
    "Pairs within the maximum list length that are below the threshold, and the likes expected " +
      "among them.",
  ],
  [
    "observed",
    "observed precision",
    "The observed rate of the items shown, by the evidence of this report.",
  ],
];
function makeTiles() {
  return TILES.map(([name, title, explanation]) => {
    const value = el("b", { id: `tile-${name}` });
    const note = el("span", { class: "small" });
    const node = el("div", { class: "tile" }, explainedButton(title, explanation), value, note);
    return { name, value, note, node };
  });
}

function showTiles(tiles, now) {
  const { users } = data.thresholds;
  const empty = now.usersByItems[0];
  const texts = {
    precision: [percent(now.precision)],
    liked: [digits(now.likedPerUser, 3), `of ${digits(now.likedPerUserWithout, 3)} in total`],
    items: [count(now.items), `${digits(now.items / users, 2)} per user`],
    empty: [count(empty), `${percent(empty / users)} of ${count(users)}`],
    hidden: [count(now.hiddenItems), `with ${count(now.hiddenPositives)} expected likes`],
    observed: [percent(now.observedPrecision)],
  };
  for (const { name, value, note } of tiles) {
    const [text, more] = texts[name];
    value.textContent = text;
    note.textContent = more || "";
  }
}

// ----- users by number of items -----
function itemsText(items, now) {
  const isOpenEnded = items === now.longest && threshold.length === "all";
  return isOpenEnded ? `${items}+` : String(items);
}

function listLengthChart(width) {
  const now = atThreshold();
  const { users } = data.thresholds;
  const heights = now.usersByItems;
  const [left, top, height] = [58, 20, 200];
  const label =
    `Users by number of items at a threshold of ${percent(now.probability)}: ` +
    `${count(heights[0])} of ${count(users)} get none. The numbers follow below.`;
  const chart = canvas(width, top + height + 46, label);
  const edges = Array.from({ length: heights.length + 1 }, (_, at) => at - 0.5);
  const x = linearScale(-0.5, heights.length - 0.5, left, width - 8);
  const y = linearScale(0, Math.max(...heights, 1), top + height, top);
  chart.append(axisY(y, left, width - 8, count, "users", 4));
  chart.append(...bars(edges, heights, x, y, "primary"));
  let step = 1;
  if (heights.length > 12) step = width < 500 ? 5 : 2;
  const ticks = heights.map((_, at) => at).filter((at) => at % step === 0);
  const format = (items) => itemsText(items, now);
  chart.append(axisX(x, top + height, format, "items per user", ticks));
  const points = heights.map((value, items) => ({
    x: x(items),
    y: y(value),
    lines: [`${itemsText(items, now)} items`, `${count(value)} users (${percent(value / users)})`],
  }));
  hover(chart, (px) => nearest(points, px));
  return chart;
}

function listLengthTable() {
  const now = atThreshold();
  const rows = now.usersByItems.map((value, items) => [itemsText(items, now), count(value)]);
  return table(["items", "users"], rows, "Users by number of items", "dense");
}

// ----- precision against list length, over all thresholds -----
function tradeoffChartAt(width) {
  const { grid, users, lengths } = data.thresholds;
  const sums = lengths[threshold.length];
  const [left, top, height, margin] = [46, 20, 200, 46];
  const label =
    "Expected precision rises and expected liked items per user fall with the threshold. " +
    "The numbers follow below.";
  const chart = canvas(width, top + height + 46, label);
  const empty = sums.items.findIndex((value) => value === 0);
  const last = Math.max(4, empty === -1 ? grid.length - 1 : empty);
  const points = grid.slice(0, last + 1).map((probability, index) => ({
    probability,
    precision: precisionAt(sums, index),
    liked: sums.expected_positives[index] / users,
  }));
  const known = points.filter(({ precision }) => !isMissing(precision));
  const mostPrecision = Math.max(...known.map(({ precision }) => precision));
  const mostLiked = Math.max(...points.map(({ liked }) => liked)) * 1.05 || 1;
  const x = linearScale(0, grid[last], left, width - margin);
  const y = linearScale(0, mostPrecision * 1.05, top + height, top);
  const yRight = linearScale(0, mostLiked, top + height, top);
  chart.append(axisY(y, left, width - margin, percent, "", 6));
  for (const tick of yRight.ticks(4)) {
    const place = { x: width - margin + 6, y: yRight(tick) + 4, class: "axis-right" };
    chart.append(svg("text", place, String(tick)));
  }
  chart.append(line(known.map((at) => [x(at.probability), y(at.precision)]), "primary"));
  chart.append(line(points.map((at) => [x(at.probability), yRight(at.liked)]), "secondary"));
  const here = x(Math.min(grid[threshold.index], grid[last]));
  chart.append(svg("line", { x1: here, x2: here, y1: top, y2: top + height, class: "cursor" }));
  chart.append(axisX(x, top + height, percent, "threshold"));
  const targets = points.map(({ probability, precision, liked }) => ({
    x: x(probability),
    y: yRight(liked),
    lines: [
      `threshold ${percent(probability)}`,
      `expected precision ${percent(precision)}`,
      `${digits(liked, 3)} liked items per user`,
    ],
  }));
  hover(chart, (px) => nearest(targets, px));
  return chart;
}

function tradeoffTable() {
  const { grid, users, lengths } = data.thresholds;
  const sums = lengths[threshold.length];
  const rows = grid.map((probability, index) => [
    percent(probability),
    digits(sums.items[index] / users, 3),
    percent(precisionAt(sums, index)),
    digits(sums.expected_positives[index] / users, 3),
  ]);
  const everyFourth = rows.filter((_, at) => at % 4 === 0);
  const headings = ["threshold", "items per user", "expected precision", "liked items per user"];
  return table(headings, everyFourth, "Precision and list length", "dense");
}
