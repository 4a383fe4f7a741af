// A session whose server is the test, and what a person does with what is drawn of it.

import "./dom";
import assert from "node:assert/strict";
import { render, type VNode } from "preact";
import { LiveSession } from "../src/state/live";
import type { ServerFrame, Wish } from "../src/wire/frame";
import type { Listener } from "../src/wire/socket";
import type { Script } from "./frames";

export class Stage {
  readonly sent: (Wish & { id?: string })[] = [];
  isConnected = true;
  listener!: Listener;
  readonly live = new LiveSession("s1", (listener) => {
    this.listener = listener;
    return { send: (wish) => this.isConnected && this.sent.push(wish) > 0, retryNow() {}, close() {} };
  });

  say(...frames: object[]): void {
    this.listener.received(frames as ServerFrame[]);
  }

  play(script: Script): void {
    this.say(...script.frames);
  }
}

export const root = document.body.appendChild(document.createElement("div"));

/** When what was begun has come to its end. Counted in turns, not in time alone: a busy machine takes longer for each of them. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 4));
}

/** For what takes an unknown time, and comes in the end. */
export async function until(isSo: () => boolean): Promise<void> {
  for (let turn = 0; !isSo(); turn += 1) {
    assert.ok(turn < 200, `it does not come to be: ${isSo}`);
    await settled();
  }
}

export async function shown(view: VNode): Promise<string> {
  render(view, root);
  await settled();
  return root.textContent ?? "";
}

export function press(name: string): void {
  const button = [...root.querySelectorAll("button")].find((one) => (one.ariaLabel ?? one.getAttribute("aria-label") ?? one.textContent)?.trim() === name);
  assert.ok(button, `no button is called ${name}: ${root.innerHTML}`);
  button.click();
}

export async function write(text: string, into = "textarea"): Promise<void> {
  const field = root.querySelector<HTMLInputElement | HTMLTextAreaElement>(into)!;
  field.value = text;
  field.dispatchEvent(new window.Event("input", { bubbles: true }));
  await settled();
}
