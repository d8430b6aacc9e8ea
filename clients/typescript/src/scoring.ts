// Decisions by a model document, without the service: scores are drawn from N(X m, scale^2 X S X').

import type { components } from "./api.js";
import { Features, type Columns, type Described } from "./features.js";

type Schemas = components["schemas"];
export type Made = Schemas["MadeDecision"];
export type Decision = { id: string; action: string; index: number; propensity: number; digest: string };
type Settings = {
  dim: number;
  policy: { type: string; values: { scale?: number } };
  features: Described | null;
  loop: string;
  exploration: number;
};

const PAIRS = 1024; // of points z and -z at which wins are counted
const ALIKE = 1e-12; // share of a variance that is taken for rounding

/** A model document at work. It decides, learns nothing and writes nothing. */
export class Scorer {
  readonly settings: Settings;
  private readonly features: Features | null;
  private readonly actions: Map<string, unknown>;
  private readonly theta: Float64Array;
  private readonly covariance: Float64Array;

  private constructor(
    readonly digest: string,
    readonly model: Schemas["Model"],
    private readonly random: () => number,
  ) {
    this.settings = model.settings as Settings;
    const { dim, policy, features } = this.settings;
    if (policy.type !== "adaptive-thompson" && policy.type !== "greedy") {
      throw new Error(`policy = ${policy.type}: expected adaptive-thompson or greedy`);
    }
    this.features = features === null || features.kind === "vectors" ? null : new Features(features);
    if (this.features && this.features.dim !== dim) throw new Error(`dim = ${dim}: expected ${this.features.dim}`);
    this.actions = new Map(model.actions);
    for (const action of this.actions.values()) this.features?.check(action as Columns);
    this.theta = numbers(model.theta, dim);
    this.covariance = numbers(model.covariance, policy.type === "greedy" ? 0 : (dim * (dim + 1)) / 2);
  }

  /** Reads a document as text, and refuses one whose bytes are not those of its digest. */
  static async read(document: string, random: () => number = Math.random): Promise<Scorer> {
    const found = /^\{"digest":"(sha256:[0-9a-f]{64})","model":(\{.*\})\}$/s.exec(document);
    if (!found) throw new Error("the document is not a model of belated");
    const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(found[2]!));
    const digest = `sha256:${hex(new Uint8Array(bytes))}`;
    if (digest !== found[1]) throw new Error(`digest = ${found[1]}: expected ${digest}, that of the model`);
    const model = JSON.parse(found[2]!) as Schemas["Model"];
    if (model.format !== 2) throw new Error(`format = ${String(model.format)}: expected 2`);
    return new Scorer(digest, model, random);
  }

  /** Names and vectors of the actions to choose from. */
  options(context: Columns | null, eligible?: string[]): [string[], Float64Array[]] {
    const names = eligible ?? [...this.actions.keys()];
    if (names.length === 0) throw new Error("there is no action to choose from");
    const rows = names.map((name) => {
      const action = this.actions.get(name);
      if (action === undefined) throw new Error(`eligible = ${JSON.stringify(name)}: expected a registered action`);
      if (this.features) return this.features.vector(action as Columns, context ?? {});
      if (context !== null) throw new Error("context: expected none for a bandit without features");
      return Float64Array.from(action as number[]);
    });
    return [names, rows];
  }

  /** Mean and root of the scores: they are `mean + root z` with z standard normal. */
  law(rows: Float64Array[]): { mean: number[]; root: Float64Array[] } {
    const mean = rows.map((x) => dot(x, this.theta));
    if (this.covariance.length === 0) return { mean, root: rows.map(() => new Float64Array(0)) };
    const products = rows.map((x) => this.times(x));
    const scale = this.settings.policy.values.scale ?? 1;
    const full = rows.map((_, a) => rows.map((x) => dot(x, products[a]!) * scale * scale));
    return { mean, root: lowerRoot(full) };
  }

  /** Chooses an action; `made` is what `Client.made` posts to the service. */
  decide(context: Columns | null = null, eligible?: string[], subject?: string): Decision & { made: Made } {
    const [names, rows] = this.options(context, eligible);
    const { mean, root } = this.law(rows);
    const share = this.settings.loop === "conversion" && this.model.n_observed === 0 ? 1 : this.settings.exploration;
    const z = normals(rows.length, this.random);
    const best = highest(mean, root, z, 1);
    const explores = share > 0 && this.random() < share;
    const index = explores ? Math.floor(this.random() * rows.length) : best;
    const wins = share < 1 ? chance(mean, root, index, best) : 0;
    const propensity = share / rows.length + (1 - share) * wins;
    const id = uuid7();
    const x = rows[index]!;
    const columns = Array.from(x.keys()).filter((k) => x[k] !== 0);
    const made: Made = {
      decision_id: id,
      action: names[index]!,
      index,
      n_actions: names.length,
      propensity,
      model_version: this.model.version,
      model_time: this.model.time,
      dim: x.length,
      columns,
      values: columns.map((k) => x[k]!),
      score: mean[index]! + dot(root[index]!, z),
      estimate: mean[index]!,
      context: context as Made["context"] ?? null,
      eligible: eligible ?? null,
      subject: subject ?? null,
    };
    return { id, action: made.action, index, propensity, digest: this.digest, made };
  }

  /** S x, from the upper half of S. */
  private times(x: Float64Array): Float64Array {
    const out = new Float64Array(x.length);
    let at = 0;
    for (let i = 0; i < x.length; i++) {
      out[i]! += this.covariance[at++]! * x[i]!;
      for (let j = i + 1; j < x.length; j++) {
        const s = this.covariance[at++]!;
        out[i]! += s * x[j]!;
        out[j]! += s * x[i]!;
      }
    }
    return out;
  }
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k]! * b[k]!;
  return sum;
}

/** L with L L' = A; a pivot that is rounding becomes 0. */
function lowerRoot(A: number[][]): Float64Array[] {
  const rows = A.map(() => new Float64Array(A.length));
  for (const [k, row] of rows.entries()) {
    for (let j = 0; j < k; j++) {
      const pivot = rows[j]![j]!;
      row[j] = pivot > 0 ? (A[k]![j]! - dot(row.subarray(0, j), rows[j]!)) / pivot : 0;
    }
    const rest = A[k]![k]! - dot(row.subarray(0, k), row);
    row[k] = rest > ALIKE * A[k]![k]! ? Math.sqrt(rest) : 0;
  }
  return rows;
}

/** The row of the highest of the scores `mean + sign root z`, the lowest of a tie. */
function highest(mean: number[], root: Float64Array[], z: Float64Array, sign: number): number {
  let best = 0;
  let most = -Infinity;
  for (const [a, m] of mean.entries()) {
    const score = m + sign * dot(root[a]!, z);
    if (score > most) [best, most] = [a, score];
  }
  return best;
}

/** The probability that an action has the highest score: its share of fixed points, and the draw itself. */
function chance(mean: number[], root: Float64Array[], index: number, best: number): number {
  if (root[0]!.length === 0) return index === best ? 1 : 0;
  let wins = 0;
  for (const z of points(mean.length)) {
    for (const sign of [1, -1]) wins += highest(mean, root, z, sign) === index ? 1 : 0;
  }
  return (wins + (index === best ? 1 : 0)) / (2 * PAIRS + 1);
}

const known = new Map<number, Float64Array[]>();

/** The fixed points for so many actions, drawn once. */
function points(n: number): Float64Array[] {
  const fixed = mulberry(1);
  const drawn = known.get(n) ?? Array.from({ length: PAIRS }, () => normals(n, fixed));
  known.set(n, drawn);
  return drawn;
}

/** Standard normal numbers (Box and Muller). */
function normals(n: number, random: () => number): Float64Array {
  return Float64Array.from({ length: n }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    return radius * Math.cos(2 * Math.PI * random());
  });
}

/** A small generator (mulberry32), so that points are the same in every decision. */
export function mulberry(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** An id that holds the time (UUID version 7). */
export function uuid7(now: number = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  for (let k = 0; k < 6; k++) bytes[k] = Math.floor(now / 256 ** (5 - k)) % 256;
  bytes[6] = 0x70 | (bytes[6]! & 0x0f);
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const text = hex(bytes);
  return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join("-");
}

/** Numbers from base64 of little-endian float64. */
function numbers(text: string, count: number): Float64Array {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  if (bytes.length !== 8 * count) throw new Error(`expected base64 of ${count} float64 numbers`);
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: count }, (_, k) => view.getFloat64(8 * k, true));
}
