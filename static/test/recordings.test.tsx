// Recorded sessions: the screen is the same for any order and batching of frames.

import "./testWindow";
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { render } from "preact";
import { Chat } from "../src/components/Chat";
import { RecordingPlayer } from "../src/state/recordingPlayer";
import { mergeEarlier } from "../src/state/earlierEvents";
import { reduce, type ReducerInput } from "../src/state/reduce";
import type { ChatRow } from "../src/state/rows";
import { emptyState, type ScreenState } from "../src/state/screenState";
import type { ServerFrame } from "../src/wire/frame";
import { readRecording } from "../src/wire/recordingFile";

const FOLDER = "test/recordings";
const recordings = readdirSync(FOLDER).filter((name) => name.endsWith(".jsonl"));

function read(name: string): ServerFrame[] {
  return readRecording(readFileSync(join(FOLDER, name), "utf8"));
}

/** Deterministic pseudo-random numbers (mulberry32). */
function random(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Returns the compared state: everything shown, nothing of the connection. */
function shown({ rows, queue, approvals, decisions, mode, plan, usage, model, agentState, reason }: ScreenState) {
  // Streamed output of a finished call is no longer shown.
  const last = ({ key, ...row }: ChatRow) => (row.kind === "tool" && row.end ? { ...row, input: null, output: null } : row);
  return { rows: rows.map(last), queue, approvals, decisions, mode, plan: plan?.markdown, usage, model, agentState, reason };
}

const durable = (frames: readonly ReducerInput[]) => frames.filter((frame) => "seq" in frame && !("status" in frame));

for (const name of recordings) {
  const frames = read(name);
  const whole = reduce(emptyState, frames);

  test(`${name}: screen matches the snapshot`, async () => {
    const root = document.body.appendChild(document.createElement("div"));
    const player = new RecordingPlayer(frames);
    render(<Chat live={player.live} />, root);
    // The newest rows mount at once, the others a moment later.
    while (root.querySelector(".earlier")) await new Promise((resolve) => setTimeout(resolve, 10));
    const lines = [...root.querySelectorAll("[role=log] .row")].map((row) => `${row.className}: ${row.textContent}`);
    const expected = join(FOLDER, name.replace(".jsonl", ".txt"));
    if (process.env.UPDATE) writeFileSync(expected, `${lines.join("\n---\n")}\n`);
    assert.equal(`${lines.join("\n---\n")}\n`, readFileSync(expected, "utf8"), "run with UPDATE=1 if the change is intended");
    render(null, root);
    player.close();
  });

  test(`${name}: any batching gives the same screen`, () => {
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      let state = emptyState;
      for (let at = 0; at < frames.length; ) {
        const size = 1 + Math.floor(next() * 40);
        state = reduce(state, frames.slice(at, at + size));
        at += size;
      }
      assert.deepEqual(shown(state), shown(whole), `seed ${seed}`);
    }
  });

  test(`${name}: reconnect at any point gives the same screen`, () => {
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      let state = emptyState;
      for (const [at, frame] of frames.entries()) {
        state = reduce(state, [frame]);
        if (next() > 0.03) continue;
        // The server resends everything after the cursor. Extra events have no effect.
        const cursor = Math.max(0, state.lastSeq - Math.floor(next() * 3));
        const again = durable(frames.slice(0, at + 1)).filter((event) => "seq" in event && (event.seq ?? 0) > cursor);
        state = reduce(state, [{ local: "lost", retryAt: 0 }, { local: "opened" }, ...again]);
      }
      assert.deepEqual(shown(state), shown(whole), `seed ${seed}`);
    }
  });

  test(`${name}: late client sees the same screen without deltas`, () => {
    assert.deepEqual(shown(reduce(emptyState, durable(frames))).rows, shown(whole).rows);
  });

  test(`${name}: newest, live and earlier events merge to the same screen`, () => {
    const events = durable(frames);
    for (let seed = 0; seed < 50; seed += 1) {
      const next = random(seed);
      const cut = Math.floor(next() * events.length);
      // Earlier events arrive in pages during live events.
      const tail = events.slice(cut);
      let past = emptyState;
      for (let at = 0; at < cut; at += 7) past = reduce(past, events.slice(at, Math.min(cut, at + 7)));
      const onScreen = reduce(emptyState, tail);
      const whole = mergeEarlier(past, tail, onScreen);
      assert.deepEqual(shown(whole).rows, shown(reduce(emptyState, events)).rows, `seed ${seed}`);
      const kept = onScreen.rows.filter((row) => whole.rows.includes(row)).length;
      assert.ok(kept >= onScreen.rows.length - 2, `seed ${seed}: ${kept} of ${onScreen.rows.length} rows are not drawn again`);
    }
  });

  test(`${name}: playback forwards, back and forwards again`, () => {
    const player = new RecordingPlayer(frames);
    const there = shown(player.live.state.value);
    for (const at of [0, 7, 3, Math.floor(frames.length / 2), 1, frames.length]) player.seek(at);
    assert.deepEqual(shown(player.live.state.value), there);
    player.close();
  });
}
