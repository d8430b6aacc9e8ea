// The client against a live service (BELATED_URL), which has the bandit "shop".

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ServiceError, data, retrying } from "../src/client.js";
import { Scorer } from "../src/scoring.js";

const url = process.env["BELATED_URL"]!;
const client = new Client(url);
const context = { device: "phone", hour: 3, price: 5 };

test("decide, reward, and the same again", async () => {
  const decision = await client.decide("shop", { context });
  assert.ok(["a", "b", "c"].includes(decision.action));
  const rewards = [{ decision_id: decision.decision_id!, reward: 1 }];
  assert.deepEqual((await client.reward(rewards)).statuses, ["accepted"]);
  assert.deepEqual((await client.reward(rewards)).statuses, ["duplicate"]);
});

test("a decision made here is posted once, and rewarded", async () => {
  const scorer = await Scorer.read(await client.model("shop"));
  const made = Array.from({ length: 3 }, () => scorer.decide(context).made);
  assert.deepEqual((await client.made("shop", made)).statuses, ["accepted", "accepted", "accepted"]);
  assert.deepEqual((await client.made("shop", made)).statuses, ["duplicate", "duplicate", "duplicate"]);
  const rewards = made.map(({ decision_id }) => ({ decision_id, reward: 0 }));
  assert.deepEqual((await client.reward(rewards)).statuses, ["accepted", "accepted", "accepted"]);
});

test("an operation by its path is typed, and a refusal is an error with its problem", async () => {
  const params = { path: { name: "shop" } };
  const state = data(await client.api.GET("/v1/bandits/{name}", { params }));
  assert.equal(state.name, "shop");
  await assert.rejects(client.decide("nobody"), (error: ServiceError) => error.problem.status === 404);
});

test("a busy service is asked again, with the same bytes, after the time it names", async () => {
  const bodies: string[] = [];
  const busy: typeof fetch = async (input) => {
    const request = input as Request;
    bodies.push(await request.clone().text());
    if (bodies.length === 1) return new Response("", { status: 503, headers: { "Retry-After": "1" } });
    if (bodies.length === 2) throw new TypeError("connection lost");
    return fetch(request);
  };
  const start = performance.now();
  const decision = await new Client(url, { fetch: busy }).decide("shop", { context });
  assert.ok(decision.logged && performance.now() - start >= 990);
  assert.equal(new Set(bodies).size, 1);
  assert.equal(bodies.length, 3);
  const down: typeof fetch = async () => new Response("", { status: 503 });
  await assert.rejects(new Client(url, { fetch: down, retries: 1 }).decide("shop"), ServiceError);
  assert.equal((await retrying(0, down)(new Request(url))).status, 503);
});
