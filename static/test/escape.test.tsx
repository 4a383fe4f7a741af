// Effect of Escape on a session page, by focus.

import "./testWindow";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { SessionPage } from "../src/components/SessionPage";
import { loadLazy } from "../src/loadLazy";
import { currentSession, toggleWorkspace } from "../src/state/currentSession";
import type { ClientRequest } from "../src/wire/frame";
import { root, settled } from "./testSession";

test("Escape interrupts from message and command fields, not from other single-line fields", async (context) => {
  context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
  const sent: ClientRequest[] = [];
  class EscapeSocket {
    static readonly OPEN = 1;
    static newest: EscapeSocket;
    readyState = 1;
    onmessage?: (message: { data: string }) => void;
    constructor() {
      EscapeSocket.newest = this;
    }
    send(text: string) {
      sent.push(JSON.parse(text) as ClientRequest);
    }
    close() {}
  }
  Object.assign(globalThis, { WebSocket: EscapeSocket, fetch: async () => new Response('{"items":[]}') });
  await loadLazy();
  render(<SessionPage id="s1" />, root);
  await settled();
  const tell = (frame: object) => EscapeSocket.newest.onmessage?.({ data: JSON.stringify(frame) });
  tell({ status: "hello", session: null, last_seq: 0, state: "running" });
  tell({ status: "synced", seq: 0 });
  toggleWorkspace();
  currentSession.value!.layout.value = { ...currentSession.value!.layout.value, tab: "commands" };
  await settled();

  const stops = async (selector: string) => {
    // An immediate repeat would count as a double click.
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
