// The client: the typed operations of the service, sent again where that does no harm.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

export type Schemas = components["schemas"];
export type Options = { key?: string; retries?: number; fetch?: typeof fetch };

const WORTH_A_RETRY = new Set([429, 502, 503, 504]);
const FIRST_PAUSE = 0.1; // seconds
export const LONGEST_PAUSE = 60;

/** An answer from 400 up: `problem` is the RFC 9457 document of the service. */
export class ServiceError extends Error {
  constructor(readonly problem: Schemas["ProblemDocument"]) {
    super(`${problem.status} ${problem.title}: ${problem.detail}`);
  }
}

/** A fetch that tries again after failures that may pass, not before `Retry-After`. */
export function retrying(retries: number, send: typeof fetch = fetch): (request: Request) => Promise<Response> {
  return async (request) => {
    for (let attempt = 0; ; attempt++) {
      let answer: Response | undefined;
      try {
        answer = await send(request.clone());
      } catch (error) {
        if (attempt >= retries) throw error;
      }
      if (answer && (attempt >= retries || !WORTH_A_RETRY.has(answer.status))) return answer;
      const asked = Number(answer?.headers.get("Retry-After") ?? 0) || 0;
      const backoff = FIRST_PAUSE * 2 ** attempt * (0.5 + Math.random() / 2);
      const pause = Math.min(Math.max(asked, backoff), LONGEST_PAUSE);
      await new Promise((resolve) => setTimeout(resolve, 1000 * pause));
    }
  };
}

/** A connection to a service; `api` has all operations by path, typed by the OpenAPI document. */
export class Client {
  readonly api;

  constructor(baseUrl: string, { key, retries = 5, fetch }: Options = {}) {
    const headers = key === undefined ? {} : { "X-API-Key": key };
    this.api = createClient<paths>({ baseUrl, headers, fetch: retrying(retries, fetch) });
  }

  /** Chooses an action. The request has an id, so that it may be sent again. */
  async decide(name: string, body: Schemas["DecisionRequest"] = {}): Promise<Schemas["DecisionAnswer"]> {
    const params = { path: { name } };
    const named = { ...body, request_id: body.request_id ?? crypto.randomUUID() };
    return data(await this.api.POST("/v1/bandits/{name}/decisions", { params, body: named }));
  }

  /** Hands in rewards, at any time and in any order; a duplicate does nothing. */
  async reward(rewards: Schemas["RewardItem"][]): Promise<Schemas["RewardAnswer"]> {
    return data(await this.api.POST("/v1/rewards", { body: { rewards } }));
  }

  /** The model document of a bandit, as text: `Scorer.read` checks its digest and decides by it. */
  async model(name: string): Promise<string> {
    const params = { path: { name } };
    return data(await this.api.GET("/v1/bandits/{name}/model", { params, parseAs: "text" }));
  }

  /** Posts decisions that a `Scorer` made, 100 at most; those that the log has are duplicates. */
  async made(name: string, decisions: Schemas["MadeDecision"][]): Promise<Schemas["MadeAnswer"]> {
    const params = { path: { name } };
    return data(await this.api.POST("/v1/bandits/{name}/decisions/made", { params, body: { decisions } }));
  }
}

type Result<T> = { data?: T; error?: unknown; response: Response };

/** The answer, or the error that it is. */
export function data<T>({ data, error, response }: Result<T>): T {
  if (data !== undefined) return data;
  const known = error !== null && typeof error === "object" && "title" in error;
  const { status, statusText: title } = response;
  const problem = known ? error : { type: "about:blank", title, status, detail: String(error) };
  throw new ServiceError(problem as Schemas["ProblemDocument"]);
}
