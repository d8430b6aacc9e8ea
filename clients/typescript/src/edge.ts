// Deciding without asking the service: the model is renewed, and decisions are posted, in the background.

import { Client, LONGEST_PAUSE, ServiceError } from "./client.js";
import type { Columns } from "./features.js";
import { Scorer, type Decision, type Made } from "./scoring.js";

const BATCH = 100; // the most that the service takes in one request
const LONGEST = 86_400; // seconds; a timer cannot wait for a month

export type EdgeOptions = {
  /** Called with each decision that the service does not take, and the reason; again if it throws. */
  refused: (made: Made, reason: string) => void | Promise<void>;
  /** Called when posting or renewing failed; both are tried again. A warning by default. */
  failed?: (error: unknown) => void;
  /** Seconds between posts, each of which also renews the model: 5 by default. */
  every?: number;
  /** How many decisions may wait to be posted: 10,000 by default. */
  most?: number;
  /** A model document to begin with, where the service need not be reached; else it is fetched. */
  document?: string;
  random?: () => number;
};

/**
 * Decides by the model of a service, without asking it, and posts the decisions later.
 *
 * What is promised is less than by the service. A decision is in the memory of this process when `decide` returns: if
 * the process ends before it is posted, the decision is lost, and its reward is for nobody. Hand in rewards after
 * `post`: one that comes first is kept for two minutes from the decision, and is unknown later. An old model decides as
 * if all rewards since were late: its age is one more delay, which the service counts by
 * `belated_edge_model_age_seconds`.
 *
 * Nothing is dropped to make room: while `most` decisions wait, `decide` throws and decides nothing. The process does
 * not end before `close`.
 */
export class Edge {
  /** Decisions that are not posted yet. */
  readonly waiting: Made[] = [];
  private posting: Promise<void> = Promise.resolve();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;

  private constructor(
    private readonly client: Client,
    private readonly bandit: string,
    public scorer: Scorer,
    private readonly options: Required<Omit<EdgeOptions, "document">>,
  ) {
    this.wait(options.every);
  }

  /** An edge with the present model of a bandit, or with `document`; throws where it cannot be had or scored. */
  static async open(client: Client, bandit: string, { document, ...given }: EdgeOptions): Promise<Edge> {
    const options = { failed: warn, every: 5, most: 10_000, random: Math.random, ...given };
    const { every, most, random } = options;
    if (!(every > 0 && every <= LONGEST)) throw new Error(`every = ${every}: expected seconds, at most ${LONGEST}`);
    if (!(Number.isInteger(most) && most > 0)) throw new Error(`most = ${most}: expected a whole number above 0`);
    return new Edge(client, bandit, await Scorer.read(document ?? (await client.model(bandit)), random), options);
  }

  /** Chooses an action. Throws, and decides nothing, while `most` decisions wait, and after `close`. */
  decide(context: Columns | null = null, eligible?: string[], subject?: string): Decision {
    if (this.closed) throw new Error("the edge is closed");
    const { most } = this.options;
    if (this.waiting.length >= most) throw new Error(`most = ${most}: so many decisions wait to be posted`);
    const { made, ...decision } = this.scorer.decide(context, eligible, subject);
    // A copy, as it will be posted: the caller may change the context, and hears now of what is no JSON.
    this.waiting.push(JSON.parse(JSON.stringify(made)) as Made);
    return decision;
  }

  /** Fetches the present model of the service, and decides by it from now on. */
  async renew(): Promise<void> {
    this.scorer = await Scorer.read(await this.client.model(this.bandit), this.options.random);
  }

  /** Posts the decisions that wait. Throws where the service cannot be reached: what it did not answer waits on. */
  post(): Promise<void> {
    const posted = this.posting.then(() => this.drain()); // one after the other
    this.posting = posted.catch(() => undefined);
    return posted;
  }

  /** Posts what waits, and ends. Throws where the service cannot be reached: `waiting` has the rest; call it again. */
  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.timer);
    await this.post();
  }

  private wait(pause: number): void {
    this.timer = setTimeout(() => void this.live(pause), 1000 * pause);
  }

  /** One post and one renewal; after a failure the next ones come later each time. */
  private async live(pause: number): Promise<void> {
    const { every, failed } = this.options;
    try {
      await this.post();
      await this.renew();
      pause = every;
    } catch (error) {
      pause = Math.max(every, Math.min(2 * pause, LONGEST_PAUSE));
      failed(error);
    }
    if (!this.closed) this.wait(pause);
  }

  private async drain(): Promise<void> {
    for (let size = BATCH; this.waiting.length > 0; ) {
      const batch = this.waiting.slice(0, size);
      const reasons = await this.reasons(batch);
      size = reasons ? Math.min(2 * size, BATCH) : Math.ceil(batch.length / 2);
      for (const reason of reasons ?? []) {
        if (reason) await this.options.refused(this.waiting[0]!, reason);
        this.waiting.shift(); // not earlier: what nobody took waits on
      }
    }
  }

  /** For each decision of a batch why it was not taken, or ""; null: the batch is refused, one part of it may not be. */
  private async reasons(batch: Made[]): Promise<string[] | null> {
    try {
      const { statuses, reasons } = await this.client.made(this.bandit, batch);
      return statuses.map((status, k) => (status === "accepted" || status === "duplicate" ? "" : reasons[k] || status));
    } catch (error) {
      const unfit = error instanceof ServiceError && [413, 422].includes(error.problem.status); // too large, or wrong
      if (!unfit) throw error;
      return batch.length > 1 ? null : [error.message];
    }
  }
}

function warn(error: unknown): void {
  console.warn("belated: tried again later:", error);
}
