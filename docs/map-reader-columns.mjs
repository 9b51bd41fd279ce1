// Evaluates every kind of calibrank map in JavaScript, from docs/json-format.md alone.
//   import { reader } from "./map-reader-columns.mjs";
//   const probability = reader(JSON.parse(text));
//   probability(1.7, { country: "de", age: 12 });
import * as simple from "./map-reader.mjs";

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

function baseLogOdds({ kind, map }) {
  if (kind in simple.logOdds) return simple.logOdds[kind](map);
  const probability = simple.probabilities[kind](map);
  return (score) => {
    const p = Math.min(Math.max(probability(score), 1e-12), 1 - 1e-12);
    return Math.log(p) - Math.log1p(-p);
  };
}

// What a feature adds to the log odds: a number by linear interpolation, a category by its text.
function termOf({ column, categories, knots, values }) {
  if (categories) {
    const added = new Map(categories.map((category, index) => [category, values[index]]));
    return (row) => (isMissing(row[column]) ? 0 : (added.get(String(row[column])) ?? 0));
  }
  const last = knots.length - 1;
  return (row) => {
    const x = row[column];
    if (!Number.isFinite(x)) throw new Error(`${column} must be a number, got ${x}`);
    const k = simple.countAtMost(knots, x);
    if (k === 0 || k > last) return values[Math.min(k, last)];
    const share = (x - knots[k - 1]) / (knots[k] - knots[k - 1]);
    return values[k - 1] + share * (values[k] - values[k - 1]);
  };
}

const kinds = {
  grouped: ({ base, columns, segments }) => {
    const z = baseLogOdds(base);
    const changes = new Map(segments.map((segment) => [JSON.stringify(segment.key), segment]));
    return (score, row) => {
      const known = columns.findIndex((name) => isMissing(row[name]));
      const named = known < 0 ? columns : columns.slice(0, known);
      for (let key = named.map((name) => String(row[name])); key.length; key.pop()) {
        const change = changes.get(JSON.stringify(key));
        if (change) return change.intercept + change.slope * z(score);
      }
      return z(score);
    };
  },
  additive: ({ base, intercept, slope, terms }) => {
    const z = baseLogOdds(base);
    const added = terms.map(termOf);
    return (score, row) =>
      added.reduce((sum, term) => sum + term(row), intercept + slope * z(score));
  },
  top: ({ base, top, column, n, term }) => {
    const [below, above] = [baseLogOdds(base), baseLogOdds(top)];
    const added = term ? termOf(term) : () => 0;
    return (score, row) => {
      if (!(row[column] >= 1)) throw new Error(`${column} must be a rank, got ${row[column]}`);
      return row[column] < n + 0.5 ? above(score) + added(row) : below(score);
    };
  },
};

export function reader(document) {
  if (!(document.kind in kinds)) return simple.reader(document);
  if (document.format !== "calibrank-map" || document.version > 1) throw new Error("not a map");
  const evaluate = kinds[document.kind](document.map);
  return (score, row = {}) => {
    if (!simple.isScore(score)) throw new Error(`a score must be within +-1e30, got ${score}`);
    return simple.sigmoid(evaluate(score, row));
  };
}
