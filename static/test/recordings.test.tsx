// Recorded sessions, put through the one store: however the frames come, the screen is the same.

import "./dom";
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { Player } from "../src/state/player";
import { inOrder } from "../src/state/past";
import { reduce, type Input } from "../src/state/reduce";
import type { Row } from "../src/state/rows";
import { empty, type SessionState } from "../src/state/session";
import type { ServerFrame } from "../src/wire/frame";
import { readRecording } from "../src/wire/record";

const FOLDER = "test/recordings";
const recordings = readdirSync(FOLDER).filter((name) => name.endsWith(".jsonl"));

function read(name: string): ServerFrame[] {
  return readRecording(readFileSync(join(FOLDER, name), "utf8"));
}

/** Numbers that look random and are the same each time (mulberry32). */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** What is compared: all that is shown of the session, and nothing of the connection. */
function shown({ rows, queue, question, plan, usage, model, agentState, reason }: SessionState) {
  // What a call that has ended printed on the way is no longer on the screen.
  const last = ({ key, ...row }: Row) => (row.kind === "tool" && row.end ? { ...row, input: null, output: null } : row);
  return { rows: rows.map(last), queue, question, plan: plan?.markdown, usage, model, agentState, reason };
}

const durable = (frames: readonly Input[]) => frames.filter((frame) => "seq" in frame && !("status" in frame));

for (const name of recordings) {
  const frames = read(name);
  const whole = reduce(empty, frames);

  test(`${name}: the screen is as it was`, async () => {
    const root = document.body.appendChild(document.createElement("div"));
    const player = new Player(frames);
    render(<Chat live={player.live} />, root);
    // The newest rows are there at once, the others a moment later.
    while (root.querySelector(".earlier")) await new Promise((resolve) => setTimeout(resolve, 10));
    const lines = [...root.querySelectorAll("[role=log] .row")].map((row) => `${row.className}: ${row.textContent}`);
    const expected = join(FOLDER, name.replace(".jsonl", ".txt"));
    if (process.env.UPDATE) writeFileSync(expected, `${lines.join("\n---\n")}\n`);
    assert.equal(`${lines.join("\n---\n")}\n`, readFileSync(expected, "utf8"), "run with UPDATE=1 where this is what was meant");
    render(null, root);
    player.close();
  });

  test(`${name}: in whatever batches the frames come`, () => {
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      let state = empty;
      for (let at = 0; at < frames.length; ) {
        const size = 1 + Math.floor(next() * 40);
        state = reduce(state, frames.slice(at, at + size));
        at += size;
      }
      assert.deepEqual(shown(state), shown(whole), `seed ${seed}`);
    }
  });

  test(`${name}: whoever is cut off anywhere and comes back has the same`, () => {
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      let state = empty;
      for (const [at, frame] of frames.entries()) {
        state = reduce(state, [frame]);
        if (next() > 0.03) continue;
        // The server sends everything after the cursor once more, and more than that does no harm.
        const cursor = Math.max(0, state.lastSeq - Math.floor(next() * 3));
        const again = durable(frames.slice(0, at + 1)).filter((event) => "seq" in event && (event.seq ?? 0) > cursor);
        state = reduce(state, [{ local: "lost", retryAt: 0 }, { local: "opened" }, ...again]);
      }
      assert.deepEqual(shown(state), shown(whole), `seed ${seed}`);
    }
  });

  test(`${name}: whoever comes later has the same without having seen it grow`, () => {
    assert.deepEqual(shown(reduce(empty, durable(frames))).rows, shown(whole).rows);
  });

  test(`${name}: the newest first, then what comes, and the past last`, () => {
    const events = durable(frames);
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      const cut = Math.floor(next() * events.length);
      // The past comes in pages, while what is live goes on.
      const tail = events.slice(cut);
      let past = empty;
      for (let at = 0; at < cut; at += 7) past = reduce(past, events.slice(at, Math.min(cut, at + 7)));
      const onScreen = reduce(empty, tail);
      const whole = inOrder(past, tail, onScreen);
      assert.deepEqual(shown(whole).rows, shown(reduce(empty, events)).rows, `seed ${seed}`);
      const kept = onScreen.rows.filter((row) => whole.rows.includes(row)).length;
      assert.ok(kept >= onScreen.rows.length - 2, `seed ${seed}: ${kept} of ${onScreen.rows.length} rows are not drawn again`);
    }
  });

  test(`${name}: forwards, back, and forwards again`, () => {
    const player = new Player(frames);
    const there = shown(player.live.state.value);
    for (const at of [0, 7, 3, Math.floor(frames.length / 2), 1, frames.length]) player.seek(at);
    assert.deepEqual(shown(player.live.state.value), there);
    player.close();
  });
}
