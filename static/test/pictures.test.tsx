// Pictures: smaller before the upload, thumbnails, and a note for models that take none.

import "./testWindow";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { render } from "preact";
import { Attachments } from "../src/components/Attachments";
import { TaskFiles } from "../src/components/TaskFiles";
import { fittedSize, renamed, shrinkPicture, typesFor } from "../src/dom/shrinkPicture";
import { options } from "../src/state/serverOptions";
import { uploadAttachment } from "../src/state/uploadAttachment";
import { UploadList } from "../src/state/uploads";
import { fileAddress, type ServerOptions } from "../src/wire/rest";
import { root, renderText } from "./testSession";

const models = [
  { name: "seeing", demo: false, takes_images: true },
  { name: "blind", demo: false, takes_images: false },
];
options.value = { models, defaults: { agent: "greenroom", model: "blind", effort: null, image: "" } } as unknown as ServerOptions;

afterEach(() => render(null, root));

/** Answers each request with a picture. Returns the requested paths. */
function servePicture(): string[] {
  const fetched: string[] = [];
  globalThis.fetch = (async (address: URL | string) => {
    fetched.push(new URL(address, location.href).pathname);
    return new Response("a picture");
  }) as typeof fetch;
  URL.createObjectURL = () => "blob:fetched";
  URL.revokeObjectURL = () => {};
  return fetched;
}

/** Replaces the browser's decoder and encoder. Returns the sizes of the drawn pictures. */
function fakeBrowser(width: number, height: number, sizes: Partial<Record<string, number>>): [number, number][] {
  const drawn: [number, number][] = [];
  globalThis.createImageBitmap = (async () => ({ width, height, close() {} })) as unknown as typeof createImageBitmap;
  const drawImage = (_: unknown, __: number, ___: number, w: number, h: number) => void drawn.push([w, h]);
  Object.assign(window.HTMLCanvasElement.prototype, {
    getContext: () => ({ drawImage }),
    toBlob(done: (blob: Blob) => void, type: string) {
      const size = sizes[type];
      done(new Blob([new Uint8Array(size ?? 1)], { type: size === undefined ? "image/png" : type }));
    },
  });
  return drawn;
}

const picture = (name: string, type: string, size = 10) => new File([new Uint8Array(size)], name, { type });

test("size fits the longest side and keeps the shape", () => {
  assert.deepEqual(fittedSize({ width: 3136, height: 1000 }), { width: 1568, height: 500 });
  assert.deepEqual(fittedSize({ width: 1000, height: 15680 }), { width: 100, height: 1568 });
  assert.deepEqual(fittedSize({ width: 1568, height: 1568 }), { width: 1568, height: 1568 });
  assert.deepEqual(fittedSize({ width: 20000, height: 1 }), { width: 1568, height: 1 });
});

test("name gets the ending of its type", () => {
  assert.equal(renamed("shot.bmp", "image/png"), "shot.png");
  assert.equal(renamed("photo.JPEG", "image/jpeg"), "photo.JPEG");
  assert.equal(renamed("v1.2.png", "image/jpeg"), "v1.2.jpg");
  assert.equal(renamed("image", "image/webp"), "image.webp");
  assert.deepEqual(typesFor("image/jpeg"), ["image/jpeg"]);
});

test("large picture is made smaller, in the first type that is small enough", async () => {
  const drawn = fakeBrowser(3136, 1568, { "image/png": 9_000_000, "image/webp": 500, "image/jpeg": 400 });
  const small = await shrinkPicture(picture("shot.png", "image/png"));
  assert.deepEqual([small.name, small.type, small.size], ["shot.webp", "image/webp", 500]);
  assert.deepEqual(drawn, [[1568, 784]]);
  // A browser that cannot pack WebP.
  fakeBrowser(3136, 1568, { "image/png": 9_000_000, "image/jpeg": 400 });
  assert.equal((await shrinkPicture(picture("shot.png", "image/png"))).name, "shot.jpg");
  fakeBrowser(3136, 1568, { "image/jpeg": 400 });
  assert.equal((await shrinkPicture(picture("photo.jpg", "image/jpeg"))).size, 400);
});

test("small picture, other file and unreadable picture stay as they are", async () => {
  const drawn = fakeBrowser(100, 100, { "image/png": 1 });
  for (const file of [picture("a.png", "image/png"), picture("a.svg", "image/svg+xml"), picture("a.pdf", "application/pdf")]) {
    assert.equal(await shrinkPicture(file), file);
  }
  assert.equal((await shrinkPicture(picture("a.bmp", "image/bmp"))).name, "a.png", "models take no BMP");
  assert.equal(drawn.length, 1);
  globalThis.createImageBitmap = () => Promise.reject(new Error("damaged"));
  const damaged = picture("a.png", "image/png");
  assert.equal(await shrinkPicture(damaged), damaged);
});

test("picture for a model without eyes is uploaded as it is", async () => {
  fakeBrowser(3136, 1568, { "image/jpeg": 400 });
  const sent: { address: string; size: number }[] = [];
  class RecordedUpload {
    upload = {};
    status = 201;
    responseText = "";
    onload = () => {};
    address = "";
    open(_: string, address: string) {
      this.address = address;
    }
    setRequestHeader() {}
    send(file: File) {
      sent.push({ address: this.address, size: file.size });
      setTimeout(this.onload);
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: RecordedUpload });
  const upload = (model: string) => uploadAttachment("s1", picture("photo.jpg", "image/jpeg", 5000), model, () => {}, new AbortController().signal);
  assert.deepEqual(await upload("seeing"), { path: "uploads/photo.jpg", size: 400 });
  await upload("blind");
  await upload("unlisted");
  assert.deepEqual(sent.map(({ size }) => size), [400, 5000, 400]);
});

test("composer shows a thumbnail, and says if the model takes no pictures", async () => {
  const uploads = new UploadList("s1");
  uploads.all.value = [{ id: "u", name: "shot.png", size: 9, progress: 1, path: "uploads/shot.png" }];
  const fetched = servePicture();
  assert.doesNotMatch(await renderText(<Attachments uploads={uploads} session="s1" model="seeing" />), /takes no pictures/);
  assert.ok(fetched.includes("/api/sessions/s1/files/uploads/shot.png"), "the page's own request has the secret");
  assert.equal(root.querySelector("img")?.getAttribute("src"), "blob:fetched");
  const note = /blind takes no pictures. The agent gets the file./;
  assert.match(await renderText(<Attachments uploads={uploads} session="s1" model="blind" />), note);
  uploads.all.value = [{ id: "u", name: "plan.md", size: 9, progress: 1, path: "uploads/plan.md" }];
  assert.doesNotMatch(await renderText(<Attachments uploads={uploads} session="s1" model="blind" />), note);
  URL.createObjectURL = () => "blob:x";
  URL.revokeObjectURL = () => {};
  const files = [picture("shot.png", "image/png")];
  assert.match(await renderText(<TaskFiles files={files} model={undefined} onChange={() => {}} />), note, "the default model");
  assert.equal(root.querySelector("img")?.getAttribute("src"), "blob:x");
  assert.doesNotMatch(await renderText(<TaskFiles files={files} model="seeing" onChange={() => {}} />), note);
});

test("file that is no picture any more is shown by its name", async () => {
  const uploads = new UploadList("s1");
  uploads.all.value = [{ id: "u", name: "shot.png", size: 9, progress: 1, path: "uploads/shot.png" }];
  servePicture();
  await renderText(<Attachments uploads={uploads} session="s1" model="seeing" />);
  root.querySelector("img")!.dispatchEvent(new window.Event("error"));
  await renderText(<Attachments uploads={uploads} session="s1" model="seeing" />);
  assert.equal(root.querySelector("img"), null);
});

test("address of a file stays below the files of its session", () => {
  assert.equal(fileAddress("s1", "uploads/ä?#.png"), "/api/sessions/s1/files/uploads/%C3%A4%3F%23.png");
  for (const path of ["../x", "a/../../x", "./x", "a//b", "/etc/passwd", ""]) assert.equal(fileAddress("s1", path), undefined, path);
});
