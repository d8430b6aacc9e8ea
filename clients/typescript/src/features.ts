// Features of belated: numbers, categories, interactions and the intercept; others are refused.

export type Columns = Record<string, unknown>;
type Pair<T> = [string, T];
export type Described = {
  kind: string;
  numeric: string[];
  categorical: string[];
  interactions: Pair<string>[];
  intercept: boolean;
  max_norm: number;
  bounded?: boolean;
  fitted: { ranges: [string, number, number][]; categories: Pair<unknown[]>[] };
};
type Entry = [place: number, value: number];
type Kind = { width: number; entry: (value: unknown) => Entry };

const NOT_HERE = ["hashed", "tags", "scale", "missing", "other", "strict"];

/** Turns an action with its context into a vector, as `belated.Features` does. */
export class Features {
  readonly dim: number;
  private readonly kinds: Map<string, Kind>;
  private readonly scale: number;

  constructor(private readonly described: Described) {
    if (described.kind !== "features") throw new Error(`features: expected Features, got ${described.kind}`);
    for (const option of NOT_HERE) {
      const given = (described as Record<string, unknown>)[option];
      const empty = !given || (Array.isArray(given) && given.length === 0);
      if (!empty) throw new Error(`features with ${option} cannot be scored here: use belated.edge`);
    }
    const ranges = new Map(described.fitted.ranges.map(([column, low, high]) => [column, [low, high] as const]));
    const categories = new Map(described.fitted.categories);
    const numbers = described.numeric.map((c) => [c, numeric(c, ...ranges.get(c)!)] as const);
    const others = described.categorical.map((c) => [c, category(c, categories.get(c)!)] as const);
    this.kinds = new Map([...numbers, ...others]);
    const widths = [...this.kinds.values()].map((kind) => kind.width);
    const products = described.interactions.map(([a, b]) => this.kinds.get(a)!.width * this.kinds.get(b)!.width);
    const all = [...widths, ...products, ...(described.intercept ? [1] : [])];
    this.dim = all.reduce((sum, width) => sum + width, 0);
    this.scale = described.bounded === false ? 1 : described.max_norm / Math.sqrt(all.length);
  }

  /** Refuses an action with a category that is not exact here. */
  check(action: Columns): void {
    for (const column of this.described.categorical) keyOf(column, action[column]);
  }

  vector(action: Columns, context: Columns): Float64Array {
    for (const key of Object.keys(action)) {
      if (key in context) throw new Error(`key ${JSON.stringify(key)} is in action and context: expected in one`);
    }
    const row: Columns = { ...context, ...action };
    const x = new Float64Array(this.dim);
    const entries = new Map<string, Entry>();
    let start = 0;
    for (const [column, kind] of this.kinds) {
      const entry = kind.entry(row[column]);
      entries.set(column, entry);
      x[start + entry[0]] = entry[1] * this.scale;
      start += kind.width;
    }
    for (const [left, right] of this.described.interactions) {
      const [i, a] = entries.get(left)!;
      const [j, b] = entries.get(right)!;
      const width = this.kinds.get(right)!.width;
      x[start + width * i + j] = a * b * this.scale;
      start += this.kinds.get(left)!.width * width;
    }
    if (this.described.intercept) x[start] = this.scale;
    return x;
  }
}

function numeric(column: string, low: number, high: number): Kind {
  const width = high / 2 - low / 2;
  const entry = (value: unknown): Entry => {
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw new Error(`column ${JSON.stringify(column)} = ${JSON.stringify(value)}: expected a finite number`);
    }
    const scaled = width ? ((value / 2 - low / 2) / width) * 2 - 1 : value - low;
    return [0, Math.min(Math.max(scaled, -1), 1)];
  };
  return { width: 1, entry };
}

/** A category that the model does not know, or none, is all zeros. */
function category(column: string, values: unknown[]): Kind {
  const places = new Map(values.map((value, k) => [keyOf(column, value), k]));
  const entry = (value: unknown): Entry => {
    const place = places.get(keyOf(column, value));
    return place === undefined ? [0, 0] : [place, 1];
  };
  return { width: values.length, entry };
}

/** The text of a category. From 2^53 on JavaScript rounds integers, and two of them would be one category. */
function keyOf(column: string, value: unknown): string | undefined {
  const exact = typeof value === "number" ? !(Math.abs(value) > Number.MAX_SAFE_INTEGER) : typeof value !== "bigint";
  if (exact) return JSON.stringify(value);
  const wanted = "expected a text, or a number of size below 2^53, from which on JavaScript rounds integers";
  throw new Error(`column ${JSON.stringify(column)} = ${String(value)}: ${wanted}`);
}
