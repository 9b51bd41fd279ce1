function drawMethods() {
  const usable = data.methods.filter((method) => !method.error);
  const names = Object.keys(usable[0].metrics).filter((name) => name !== "Discrimination");
  const worth = (name, value) => {
    if (missing(value)) return Infinity;
    const better = data.better[name];
    return better === "one" ? Math.abs(Math.log(Math.max(value, 1e-300))) : better === "higher" ? -value : value;
  };
  const best = Object.fromEntries(names.map((name) => [name, Math.min(...usable.map((method) => worth(name, method.metrics[name][0])))]));
  const titles = { CalibrationInTheLarge: "predicted / observed" };
  let sorted = "LogLoss";
  const body = el("tbody", null);
  const heads = names.map((name) => {
    const button = el("button", { type: "button", class: "explain", "aria-describedby": `why-${names.indexOf(name)}` }, titles[name] || name);
    button.addEventListener("click", () => order(name));
    explain(button, data.explanations[name]);
    return el("th", { scope: "col", "data-metric": name }, button);
  });

  function order(name) {
    sorted = name;
    for (const head of heads) head.setAttribute("aria-sort", head.dataset.metric === name ? (data.better[name] === "higher" ? "descending" : "ascending") : "none");
    const rows = usable.slice().sort((one, two) => worth(sorted, one.metrics[sorted][0]) - worth(sorted, two.metrics[sorted][0]));
    body.replaceChildren(...rows.map(row), ...data.methods.filter((method) => method.error).map(failed));
  }

  function row(method) {
    const cells = names.map((name) => {
      const [value, low, high] = method.metrics[name];
      const top = !missing(value) && Math.abs(worth(name, value) - best[name]) < 5e-5; // equal as shown
      return el("td", { class: top ? "best" : null, "data-metric": name }, el("span", { class: "value" }, digits(value, 4)), el("span", { class: "interval" }, between(low, high, (end) => digits(end, 4))));
    });
    return el("tr", { class: method.name === data.main ? "main" : null, "data-method": method.name }, el("th", { scope: "row" }, method.name), cells);
  }

  const failed = (method) => el("tr", { class: "failed" }, el("th", { scope: "row" }, method.name), el("td", { colspan: names.length }, `No fit: ${method.error}`));

  order(sorted);
  const wide = el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Metrics of every method" },
    el("table", { class: "metrics" }, el("caption", null, "Every method by every metric, 95 % intervals below; the best of a column in bold, this report's map tinted. Choose a heading to sort by it."), el("thead", null, el("tr", null, el("th", { scope: "col" }, "method"), heads)), body),
  );
  const ordering = { ...data.ranking, Discrimination: usable[0].metrics.Discrimination };
  const ranking = Object.entries(ordering).map(([name, [value, low, high]]) =>
    el("li", null, explain(el("button", { type: "button", class: "explain" }, name), data.explanations[name]), ` ${digits(value, 4)}${missing(low) ? "" : ` (${between(low, high, (end) => digits(end, 4))})`}`),
  );
  section(
    "methods",
    "Methods and metrics",
    wide,
    el("p", { class: "after-table" }, "What the order of the scores is worth, which no strictly increasing map changes:"),
    el("ul", { class: "plainlist" }, ranking),
    el("p", { class: "small" }, "A metric's interval says how far it would move with other users of the same kind; two methods judged on the same users may differ more surely than their intervals suggest."),
    el("details", { class: "meanings" }, el("summary", null, "What the metrics mean"), el("dl", null, names.flatMap((name, at) => [el("dt", null, titles[name] || name), el("dd", { id: `why-${at}` }, data.explanations[name])]))),
  );
}
