// Evaluates calibrank maps in JavaScript, from docs/json-format.md alone.
//   import { reader } from "./map-reader.mjs";
//   const probability = reader(JSON.parse(text));
//   probability(1.7);                                    // a map of the score
//   probability(1.7, { country: "de", age: 12 });        // one with terms: their columns by name
// A row that has no probability, because a value is missing or out of range, gives null.
const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const within = (value, low, high) => typeof value === "number" && value >= low && value <= high;
const dot = (left, right) => left.reduce((sum, value, index) => sum + value * right[index], 0);

// The number of edges that are at most the score.
function countAtMost(edges, score) {
  let [low, high] = [0, edges.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= score) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Linear between knots, and beyond them with these slopes.
function lines(knots, values, [below, above], x) {
  const [k, last] = [countAtMost(knots, x), knots.length - 1];
  if (k === 0) return values[0] + below * (x - knots[0]);
  if (k > last) return values[last] + above * (x - knots[last]);
  const slope = (values[k] - values[k - 1]) / (knots[k] - knots[k - 1]);
  return values[k - 1] + slope * (x - knots[k - 1]);
}

function generators(basis, s, low, high) {
  const u = (s - low) / (high - low);
  if (basis.name === "linear") return [u];
  if (basis.name === "quadratic") return [(1 - (1 - u) ** 2) / 2, u ** 2 / 2];
  if (basis.name === "softplus") return [-softplus(-s), softplus(s)];
  const m = basis.margin;
  const rise = Math.log1p(u / m);
  const terms = [m * ((1 + m) * rise - u), (1 + m) * (u - m * rise)];
  const curvature = (1 + 2 * m) * u - ((u + 2 * m) * u) / 2 - m * (1 + m) * rise;
  return basis.name === "log" ? terms : [...terms, curvature];
}

function endSlopes({ basis, low, high }, end) {
  const steep = 1 / (high - low);
  if (basis.name === "softplus") return [sigmoid(-end), sigmoid(end)];
  if (basis.name === "linear") return [steep];
  return end === low ? [steep, 0, 0] : [0, steep, 0];
}

// Probabilities of two kinds of curves, and log odds of the two others.
const probabilities = {
  rescale: ({ low, high }, score) => Math.min(Math.max((score - low) / (high - low), 0), 1),
  step: ({ edges, values }, score) => values[countAtMost(edges, score)],
};
const logOdds = {
  piecewise: (curve, score) => lines(curve.knots, curve.values, curve.end_slopes, score),
  logistic: (curve, score) => {
    const { basis, low, high, intercept, coefficients } = curve;
    const s = Math.min(Math.max(score, low), high);
    const inside = dot(coefficients, generators(basis, s, low, high));
    const below = dot(coefficients, endSlopes(curve, low)) * Math.min(score - low, 0);
    const above = dot(coefficients, endSlopes(curve, high)) * Math.max(score - high, 0);
    return intercept + inside + below + above;
  },
  step: (curve, score) => {
    const p = Math.min(Math.max(probabilities.step(curve, score), 1e-12), 1 - 1e-12);
    return Math.log(p) - Math.log1p(-p);
  },
};

// The text that a value has as a level; undefined where it is none. Numbers have no ".0" here.
function levelOf(value) {
  if (typeof value === "string" || typeof value === "boolean") return String(value);
  return Number.isSafeInteger(value) ? String(value) : undefined;
}

// The log odds that stand in place of those of the curve, z; null where a column is invalid.
const replacements = {
  position: ({ column, n, curve, by_rank: byRank }) => (row, score, z) => {
    const rank = row[column];
    if (!within(rank, 1, 1e9)) return null;
    if (rank >= n + 0.5) return z;
    const added = byRank ? lines(byRank.knots, byRank.values, [0, 0], rank) : 0;
    return logOdds[curve.kind](curve, score) + added;
  },
};
// What each other kind of term adds to them.
const additions = {
  level: ({ columns, keys, intercepts, slopes, typical }) => {
    const numbers = new Map(keys.map((key, index) => [JSON.stringify(key), index]));
    return (row, score, z) => {
      const key = columns.map((name) => levelOf(row[name]));
      if (key.includes(undefined)) return null;
      while (key.length && !numbers.has(JSON.stringify(key))) key.pop();
      const index = numbers.get(JSON.stringify(key));
      return index === undefined ? typical : intercepts[index] + (slopes[index] - 1) * z;
    };
  },
  smooth: ({ column, knots, values }) => (row) =>
    within(row[column], -1e30, 1e30) ? lines(knots, values, [0, 0], row[column]) : null,
};

export function reader({ format, version, curve, terms }) {
  if (format !== "calibrank-map" || version !== 2) throw new Error("not a map of version 2");
  const made = (kinds) => terms.filter(({ kind }) => kind in kinds).map((t) => kinds[t.kind](t));
  const [replaced, added] = [made(replacements), made(additions)];
  if (replaced.length + added.length < terms.length) throw new Error("an unknown kind of term");
  return (score, row = {}) => {
    if (!within(score, -1e30, 1e30)) return null;
    const probability = probabilities[curve.kind];
    if (probability && !terms.length) return probability(curve, score);
    let z = logOdds[curve.kind](curve, score);
    for (const term of replaced) z = z === null ? null : term(row, score, z);
    const changes = z === null ? [null] : added.map((term) => term(row, score, z));
    return changes.includes(null) ? null : sigmoid(changes.reduce((sum, each) => sum + each, z));
  };
}
