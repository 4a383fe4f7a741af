// Placement of a menu. jsdom has no layout, so the test sets the button's position.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Popover } from "../src/components/Popover";
import { press, root, settled, renderText } from "./testSession";

const windowIs = (clientHeight: number) =>
  Object.defineProperties(document.documentElement, {
    clientWidth: { value: 360, configurable: true },
    clientHeight: { value: clientHeight, configurable: true },
  });
windowIs(800);

let top = 0;
HTMLElement.prototype.getBoundingClientRect = () => ({ top, bottom: top + 32, right: 280 }) as DOMRect;

afterEach(() => render(null, root));

const placed = () => {
  const { style } = root.querySelector<HTMLElement>(".popover-panel")!;
  return [style.getPropertyValue("--inset"), style.getPropertyValue("--room")];
};

async function check(at: number, inset: string, room: string) {
  top = at;
  await renderText(<Popover label="Menu">{() => <button>Rename</button>}</Popover>);
  press("Menu");
  await settled();
  assert.deepEqual(placed(), [inset, room]);
  render(null, root);
}

test("menu opens below its button or above if there is more room", async () => {
  await check(100, "136px 80px auto auto", "660px");
  await check(420, "456px 80px auto auto", "340px");
  await check(440, "auto 80px 364px auto", "432px");
  await check(760, "auto 80px 44px auto", "752px");
});

test("menu in a low window opens to the larger side and scrolls", async () => {
  windowIs(300);
  await check(40, "76px 80px auto auto", "220px");
  await check(200, "auto 80px 104px auto", "192px");
});

test("menu follows its button", async () => {
  const view = () => <ul><li><Popover label="Menu">{() => <button>Rename</button>}</Popover></li></ul>;
  top = 40;
  await renderText(view());
  press("Menu");
  await settled();
  const list = root.querySelector("ul")!;
  for (const move of [() => list.dispatchEvent(new window.Event("scroll")), () => window.dispatchEvent(new window.Event("resize")), () => render(view(), root)]) {
    top += 10;
    move();
    await settled();
    assert.equal(placed()[0], `${top + 36}px 80px auto auto`);
  }
  top += 10;
  const beside = document.body.appendChild(document.createElement("div"));
  beside.dispatchEvent(new window.Event("scroll"));
  assert.notEqual(placed()[0], `${top + 36}px 80px auto auto`, "unrelated scrolling does not move the menu");
});
