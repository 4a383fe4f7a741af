// Builds the web UI into `dist/`, or with `--tests` its unit tests into `dist-test/`.

import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** The most JavaScript that a first visit may load, in bytes of gzip. */
const FIRST_LOAD_LIMIT = 60 * 1024;

/** The pages that people open first; what each loads at once is its first load. */
const FIRST_PAGES = { "the first page": "src/components/Home.tsx", "a session": "src/components/SessionPage.tsx" };

/** The tab's icon: plain, while the agent works, and while somebody is waited for. */
const ICONS = ["favicon.svg", "favicon-working.svg", "favicon-waiting.svg"];

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

const shared = {
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
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
    // Beside the code, in files that the server hands out as well: people must be able to read them, not load them.
    legalComments: "linked",
    metafile: true,
  });

  const outputs = Object.entries(metafile.outputs);
  const fileOf = (source) => outputs.find(([, output]) => output.entryPoint === source)[0];
  const script = fileOf("src/main.tsx");
  const style = fileOf("src/styles/index.css");

  const shell = (await readFile("index.html", "utf8"))
    .replace("{{script}}", `/assets/${basename(script)}`)
    .replace("{{style}}", `/assets/${basename(style)}`);
  // A session's address has a shell of its own, which names what the conversation needs.
  const pages = { "index.html": [script, fileOf("src/components/Home.tsx")], "session.html": [script, fileOf("src/components/SessionPage.tsx")] };
  for (const [name, entries] of Object.entries(pages)) {
    await writeFile(`dist/${name}`, shell.replace("{{preload}}", preloads(closure(metafile, entries), script)));
  }
  for (const icon of ICONS) await copyFile(icon, `dist/${icon}`);
  await reportSizes(metafile, script, style, fileOf);
}

/** What the script imports is on its way before it says so. */
function preloads(files, script) {
  return [...files].filter((file) => file !== script).map((file) => `<link rel="modulepreload" href="/assets/${basename(file)}" />`).join("\n    ");
}

async function reportSizes(metafile, script, style, fileOf) {
  const gzipped = async (files) => {
    const sizes = await Promise.all([...files].map(async (file) => gzipSync(await readFile(file)).length));
    return sizes.reduce((sum, size) => sum + size, 0);
  };
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  const scripts = Object.keys(metafile.outputs).filter((file) => file.endsWith(".js"));
  console.log(`${kib(await gzipped(scripts))} of JavaScript in all, ${kib(await gzipped([style]))} of CSS (gzip)`);
  for (const [page, source] of Object.entries(FIRST_PAGES)) {
    const load = await gzipped(closure(metafile, [script, fileOf(source)]));
    console.log(`first load of ${page}: ${kib(load)} of JavaScript`);
    if (load <= FIRST_LOAD_LIMIT) continue;
    console.error(`that is more than ${kib(FIRST_LOAD_LIMIT)}: import the largest part lazily (\`await import(…)\`)`);
    process.exitCode = 1;
  }
}

/** These files and all that they cannot do without. */
function closure(metafile, files) {
  const found = new Set(files);
  for (const file of found) {
    for (const { path, kind } of metafile.outputs[file].imports) if (kind === "import-statement") found.add(path);
  }
  return found;
}

async function buildTests() {
  await rm("dist-test", { recursive: true, force: true });
  await mkdir("dist-test", { recursive: true });
  const tests = (await readdir("test")).filter((name) => /\.test\.tsx?$/.test(name));
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
