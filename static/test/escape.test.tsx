// What Escape stops on the page of a session, by where the focus is.

import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { SessionPage } from "../src/components/SessionPage";
import { loadLater } from "../src/ondemand";
import { current, toggleWorkspace } from "../src/state/current";
import type { Wish } from "../src/wire/frame";
import { root, settled } from "./stage";

test("it stops what runs from where messages and commands are written, and in another field of one line it does not", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const sent: Wish[] = [];
  class FakeSocket {
    static readonly OPEN = 1;
    static newest: FakeSocket;
    readyState = 1;
    onmessage?: (message: { data: string }) => void;
    constructor() {
      FakeSocket.newest = this;
    }
    send(text: string) {
      sent.push(JSON.parse(text) as Wish);
    }
    close() {}
  }
  Object.assign(globalThis, { WebSocket: FakeSocket, fetch: async () => new Response('{"items":[]}') });
  await loadLater();
  render(<SessionPage id="s1" />, root);
  await settled();
  const tell = (frame: object) => FakeSocket.newest.onmessage?.({ data: JSON.stringify(frame) });
  tell({ status: "hello", session: null, last_seq: 0, state: "running" });
  tell({ status: "synced", seq: 0 });
  toggleWorkspace();
  current.value!.layout.value = { ...current.value!.layout.value, tab: "commands" };
  await settled();

  const stops = async (selector: string) => {
    // Another one soon after would be a double click.
    context.mock.timers.tick(5000);
    const before = sent.length;
    const field = root.querySelector<HTMLInputElement>(selector)!;
    field.value = "half a word";
    field.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true }));
    await settled();
    return sent.slice(before).some(({ action }) => action === "interrupt");
  };
  assert.equal(await stops(".composer textarea"), true);
  assert.equal(await stops(".command-field"), true);
  root.insertAdjacentHTML("beforeend", "<input id=other>");
  assert.equal(await stops("#other"), false);
  root.querySelector("#other")!.remove();
  render(null, root);
});
