// Builds the web UI into `dist/`, or with `--tests` its unit tests into `dist-test/`.

import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The most JavaScript that a first visit may load, in bytes of gzip. */
const FIRST_LOAD_LIMIT = 60 * 1024;

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

const shared = {
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
};

if (process.argv.includes("--tests")) await buildTests();
else await buildApp();

async function buildApp() {
  await rm("dist", { recursive: true, force: true });
  const { metafile } = await build({
    ...shared,
    entryPoints: { app: "src/main.tsx", style: "src/styles/index.css" },
    outdir: "dist/assets",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    splitting: true,
    minify: true,
    metafile: true,
  });

  const outputs = Object.entries(metafile.outputs);
  const fileOf = (source) => outputs.find(([, output]) => output.entryPoint === source)[0];
  const script = fileOf("src/main.tsx");
  const style = fileOf("src/styles/index.css");

  const page = (await readFile("index.html", "utf8"))
    .replace("{{script}}", `/assets/${basename(script)}`)
    .replace("{{style}}", `/assets/${basename(style)}`);
  await writeFile("dist/index.html", page);
  await copyFile("favicon.svg", "dist/favicon.svg");
  await reportSizes(metafile, script, style);
}

async function reportSizes(metafile, script, style) {
  const first = new Set([script]);
  for (const file of first) {
    for (const { path, kind } of metafile.outputs[file].imports) if (kind === "import-statement") first.add(path);
  }
  const gzipped = async (files) => {
    const sizes = await Promise.all([...files].map(async (file) => gzipSync(await readFile(file)).length));
    return sizes.reduce((sum, size) => sum + size, 0);
  };
  const lazy = Object.keys(metafile.outputs).filter((file) => file.endsWith(".js") && !first.has(file));
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  const load = await gzipped(first);
  console.log(`first load ${kib(load)} of JavaScript, ${kib(await gzipped([style]))} of CSS (gzip); lazily ${kib(await gzipped(lazy))}`);
  if (load > FIRST_LOAD_LIMIT) {
    console.error(`the first load exceeds ${kib(FIRST_LOAD_LIMIT)}: import the largest part lazily (\`await import(…)\`)`);
    process.exitCode = 1;
  }
}

async function buildTests() {
  await rm("dist-test", { recursive: true, force: true });
  await mkdir("dist-test", { recursive: true });
  const tests = (await readdir("test")).filter((name) => name.endsWith(".test.ts"));
  await build({
    ...shared,
    entryPoints: tests.map((name) => join("test", name)),
    outdir: "dist-test",
    outExtension: { ".js": ".mjs" },
    platform: "node",
    // jsdom reads files beside its own sources, so it cannot be bundled.
    external: ["jsdom"],
    sourcemap: "inline",
  });
}
