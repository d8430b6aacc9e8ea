// Deciding without asking, against a live service (BELATED_URL) and one that is killed (BELATED_PYTHON starts it).

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Client, ServiceError, data } from "../src/client.js";
import { Edge, type EdgeOptions } from "../src/edge.js";

const url = process.env["BELATED_URL"]!;
const context = { device: "phone", hour: 3, price: 5 };
const never: EdgeOptions = { every: 3600, refused: (_, reason) => assert.fail(reason) };

async function until(true_: () => boolean | Promise<boolean>): Promise<void> {
  const end = Date.now() + 120_000;
  while (!(await true_())) {
    assert.ok(Date.now() < end, "waited for 120 seconds");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function rewarded(client: Client, ids: string[]): Promise<Set<string>> {
  const { statuses } = await client.reward(ids.map((decision_id) => ({ decision_id, reward: 1 })));
  return new Set(statuses);
}

test("decisions are posted 100 at a time, each once, though an answer is lost", async () => {
  const sizes: number[] = [];
  const counting: typeof fetch = async (input) => {
    const request = input as Request;
    const posted = request.method === "POST" ? (JSON.parse(await request.clone().text()) as { decisions: [] }) : null;
    const answer = await fetch(request);
    if (posted && sizes.push(posted.decisions.length) === 2) throw new TypeError("the answer was lost");
    return answer;
  };
  const edge = await Edge.open(new Client(url, { fetch: counting, retries: 0 }), "shop", never);
  const visit = { ...context };
  const ids = Array.from({ length: 250 }, () => edge.decide(visit, undefined, "somebody").id);
  visit.device = "changed afterwards";
  await assert.rejects(edge.post(), /the answer was lost/);
  assert.equal(edge.waiting.length, 150);
  assert.ok(edge.waiting.every((made) => made.context!["device"] === "phone"));
  await Promise.all([edge.post(), edge.post()]);
  assert.deepEqual(sizes, [100, 100, 100, 50]);
  await edge.close();
  assert.deepEqual(await rewarded(new Client(url), ids), new Set(["accepted"]));
  assert.throws(() => edge.decide(context), /the edge is closed/);
});

test("in the background decisions are posted and the model is renewed", async () => {
  const client = new Client(url);
  const edge = await Edge.open(client, "shop", { ...never, every: 0.05 });
  const first = edge.scorer.digest;
  const { id, digest } = edge.decide(context);
  assert.equal(digest, first);
  await until(() => edge.waiting.length === 0);
  assert.deepEqual(await rewarded(client, [id]), new Set(["accepted"]));
  await until(() => edge.scorer.digest !== first);
  await edge.close();
});

test("decisions that the service refuses are handed over, and no others", async () => {
  const client = new Client(url);
  const told: [string, string][] = [];
  let broken = true;
  const refused = async (made: { decision_id: string }, reason: string) => {
    if (broken) throw new Error("the disk is full");
    told.push([made.decision_id, reason]);
  };
  const edge = await Edge.open(client, "shop", { ...never, refused });
  const ids = Array.from({ length: 5 }, () => edge.decide(context).id);
  const long = edge.decide(context, undefined, "x".repeat(201)).id; // the whole request is refused for it
  const clock = Date.now;
  Date.now = () => clock() + 3_600_000;
  const early = edge.decide(context).id;
  Date.now = clock;
  ids.push(edge.decide(context).id);
  await assert.rejects(edge.post(), /the disk is full/);
  assert.equal(edge.waiting[0]!.decision_id, long);
  broken = false;
  await edge.close();
  assert.deepEqual(told.map(([id]) => id), [long, early]);
  assert.match(told[0]![1], /422.*subject/);
  assert.match(told[1]![1], /decision_id = .*: expected no time after now/);
  assert.deepEqual(await rewarded(client, ids), new Set(["accepted"]));
});

test("a full queue, and what is no JSON, is refused where the decision is asked for", async () => {
  const edge = await Edge.open(new Client(url), "shop", { ...never, most: 2 });
  assert.throws(() => edge.decide({ ...context, session: 1n }), TypeError);
  edge.decide(context);
  edge.decide(context);
  assert.throws(() => edge.decide(context), /most = 2: so many decisions wait to be posted/);
  assert.equal(edge.waiting.length, 2);
  await edge.post();
  edge.decide(context);
  await edge.close();
  for (const every of [0, NaN, 1e9]) {
    await assert.rejects(Edge.open(new Client(url), "shop", { ...never, every }), /every = .*: expected seconds/);
  }
  await assert.rejects(Edge.open(new Client(url), "shop", { ...never, most: 0.5 }), /most = 0.5: expected/);
});

test("decisions outlast a service that is killed and started again", async () => {
  const folder = mkdtempSync(join(tmpdir(), "belated-"));
  const listening = createServer().listen(0, "127.0.0.1");
  await once(listening, "listening");
  const port = (listening.address() as AddressInfo).port;
  listening.close();
  const ledger = `sqlite:///${folder}/shop.db`;
  const start = async (): Promise<ChildProcess> => {
    const command = ["-m", "belated", "serve", "--ledger", ledger, "--port", String(port)];
    const child = spawn(process.env["BELATED_PYTHON"]!, command, { stdio: ["ignore", "ignore", "inherit"] });
    await until(() => fetch(`http://127.0.0.1:${port}/readyz`).then(({ ok }) => ok, () => false));
    return child;
  };
  const end = async (child: ChildProcess): Promise<void> => {
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  let service = await start();
  try {
    const client = new Client(`http://127.0.0.1:${port}`, { retries: 0 });
    const params = { path: { name: "shop" } };
    data(await client.api.PUT("/v1/bandits/{name}", { params, body: { family: "bernoulli", dim: 2 } }));
    const put = { a: [0.6, 0], b: [0, 0.8] };
    data(await client.api.PATCH("/v1/bandits/{name}/actions", { params, body: { put } }));
    const failures: unknown[] = [];
    const edge = await Edge.open(client, "shop", { ...never, every: 0.1, failed: (error) => failures.push(error) });
    const ids = [edge.decide().id];
    await until(() => edge.waiting.length === 0);
    await end(service);
    ids.push(...Array.from({ length: 120 }, () => edge.decide().id));
    await until(() => failures.length === 3); // after 0.1, 0.2 and 0.4 seconds
    assert.equal(edge.waiting.length, 120);
    service = await start();
    await until(() => edge.waiting.length === 0); // by itself
    assert.deepEqual(await rewarded(client, ids), new Set(["accepted"]));
    await until(() => edge.scorer.model.version > 240); // the renewed model has them all
    await end(service);
    const last = edge.decide().id;
    await assert.rejects(edge.close(), (error) => !(error instanceof ServiceError));
    assert.deepEqual(edge.waiting.map((made) => made.decision_id), [last]);
    service = await start();
    await edge.close();
    assert.deepEqual(await rewarded(client, [last]), new Set(["accepted"]));
  } finally {
    await end(service);
    rmSync(folder, { recursive: true });
  }
});
