// Session with the test as its server, and user actions on the rendered page.

import "./testWindow";
import assert from "node:assert/strict";
import { render, type VNode } from "preact";
import { LiveSession } from "../src/state/liveSession";
import type { ServerFrame, ClientRequest } from "../src/wire/frame";
import type { TransportListener } from "../src/wire/socket";
import type { FrameScript } from "./frameScript";

export class TestSession {
  readonly sent: (ClientRequest & { id?: string })[] = [];
  isConnected = true;
  listener!: TransportListener;
  readonly live = new LiveSession("s1", (listener) => {
    this.listener = listener;
    return { send: (request) => this.isConnected && this.sent.push(request) > 0, retryNow() {}, close() {} };
  });

  receive(...frames: object[]): void {
    this.listener.received(frames as ServerFrame[]);
  }

  play(script: FrameScript): void {
    this.receive(...script.frames);
  }
}

export const root = document.body.appendChild(document.createElement("div"));

/** Waits until started work settles. Counts turns, because a busy machine takes longer for each. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setTimeout(resolve, 4));
}

/** Waits for a condition of unknown duration. */
export async function waitUntil(isSo: () => boolean): Promise<void> {
  for (let turn = 0; !isSo(); turn += 1) {
    assert.ok(turn < 200, `it does not come to be: ${isSo}`);
    await settled();
  }
}

export async function renderText(view: VNode): Promise<string> {
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
