// Scoring against numbers that Python wrote (BELATED_GOLDEN); tests/test_typescript.py runs this.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Scorer, mulberry, uuid7 } from "../src/scoring.js";

type Golden = {
  documents: { content: string; cases: { context: Record<string, unknown> | null; names: string[]; rows: number[][]; mean: number[]; covariance: number[][]; probabilities: number[] }[] }[];
  refused: { content: string; says: string }[];
};
const golden = JSON.parse(readFileSync(process.env["BELATED_GOLDEN"]!, "utf8")) as Golden;
const close = (a: number, b: number, room: number) => assert.ok(Math.abs(a - b) <= room, `${a} is not ${b}`);

test("vectors, means and covariances are Python's", async () => {
  for (const { content, cases } of golden.documents) {
    const scorer = await Scorer.read(content);
    for (const { context, names, rows, mean, covariance } of cases) {
      const [actions, vectors] = scorer.options(context);
      assert.deepEqual(actions, names);
      assert.deepEqual(vectors.map((x) => Array.from(x)), rows);
      const law = scorer.law(vectors);
      law.mean.forEach((m, a) => close(m, mean[a]!, 1e-12 * (1 + Math.abs(m))));
      covariance.forEach((row, a) =>
        row.forEach((c, b) => {
          const product = law.root[a]!.reduce((sum, l, k) => sum + l * law.root[b]![k]!, 0);
          close(product, c, 1e-9 * (1 + Math.abs(c)));
        }),
      );
    }
  }
});

test("actions are chosen with the bandit's probabilities, and say so", async () => {
  for (const { content, cases } of golden.documents) {
    const scorer = await Scorer.read(content, mulberry(7));
    const { context, names, probabilities } = cases[0]!;
    const counts = probabilities.map(() => 0);
    const n = 600;
    for (let k = 0; k < n; k++) {
      const { index, propensity, made } = scorer.decide(context);
      counts[index]! += 1;
      close(propensity, probabilities[index]!, 0.05); // 4 standard errors of 2,048 points
      assert.equal(made.n_actions, counts.length);
      assert.equal(made.action, names[index]);
    }
    counts.forEach((count, a) => {
      const p = probabilities[a]!;
      close(count / n, p, 4 * Math.sqrt((p * (1 - p)) / n) + 0.013);
    });
  }
});

test("what cannot be scored here is refused", async () => {
  for (const { content, says } of golden.refused) {
    await assert.rejects(Scorer.read(content), (error: Error) => error.message.includes(says));
  }
  const { content } = golden.documents[0]!;
  await assert.rejects(Scorer.read(content.replace('"version":', '"version": ')), /digest = /);
  await assert.rejects(Scorer.read("{}"), /not a model of belated/);
  const scorer = await Scorer.read(content);
  assert.throws(() => scorer.decide(null, ["nobody"]), /expected a registered action/);
  assert.throws(() => scorer.decide(null, ["toString"]), /expected a registered action/);
});

test("a category that JavaScript rounds is refused, and a number is not", async () => {
  const scorer = await Scorer.read(golden.documents[0]!.content);
  const context = { device: "phone", hour: 2 ** 60, price: 5 };
  assert.ok(scorer.decide(context).propensity > 0);
  const told = /column "device" = -?(9007199254740993|9007199254740992|Infinity): expected a text, or a number of size below 2\^53/;
  for (const device of [2 ** 53, -(2 ** 53), 9007199254740993n, Infinity]) {
    assert.throws(() => scorer.decide({ ...context, device }), told);
  }
  const { index } = scorer.decide({ ...context, device: Number.MAX_SAFE_INTEGER }); // exact, and unknown
  assert.ok(index >= 0);
});

test("ids hold the time", () => {
  const id = uuid7(0x0123456789ab);
  assert.match(id, /^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});
