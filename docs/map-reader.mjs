// Evaluates a calibrank map in JavaScript, from docs/json-format.md alone.
//   import { reader } from "./map-reader.mjs";
//   const probability = reader(JSON.parse(text));
//   probability(1.7);
// Maps that read further columns (segments, features, ranks): map-reader-columns.mjs.
const sigmoid = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const isScore = (value) => typeof value === "number" && Math.abs(value) <= 1e30;
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

// Of the score alone: probabilities of two kinds of maps, and log odds of the two others.
const probabilities = {
  rescale: ({ low, high }) => (score) => Math.min(Math.max((score - low) / (high - low), 0), 1),
  step: ({ edges, values }) => (score) => values[countAtMost(edges, score)],
};
const logOdds = {
  piecewise: ({ knots, values, end_slopes: slopes }) => (score) => {
    const last = knots.length - 1;
    const k = countAtMost(knots, score);
    if (k === 0) return values[0] + slopes[0] * (score - knots[0]);
    if (k > last) return values[last] + slopes[1] * (score - knots[last]);
    const slope = (values[k] - values[k - 1]) / (knots[k] - knots[k - 1]);
    return values[k - 1] + slope * (score - knots[k - 1]);
  },
  logistic: (map) => {
    const { basis, low, high, intercept, coefficients } = map;
    const below = dot(coefficients, endSlopes(map, low));
    const above = dot(coefficients, endSlopes(map, high));
    return (score) => {
      const s = Math.min(Math.max(score, low), high);
      const inside = dot(coefficients, generators(basis, s, low, high));
      const beyond = below * Math.min(score - low, 0) + above * Math.max(score - high, 0);
      return intercept + inside + beyond;
    };
  },
};

export function reader({ format, version, kind, map }) {
  if (format !== "calibrank-map" || version > 1) throw new Error("not a map");
  const isSimple = kind in probabilities;
  if (!isSimple && !(kind in logOdds)) throw new Error(`map-reader-columns.mjs reads ${kind} maps`);
  const evaluate = isSimple ? probabilities[kind](map) : logOdds[kind](map);
  return (score) => {
    if (!isScore(score)) throw new Error(`a score must be within +-1e30, got ${score}`);
    return isSimple ? evaluate(score) : sigmoid(evaluate(score));
  };
}

export { countAtMost, isScore, logOdds, probabilities, sigmoid };
