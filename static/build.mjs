// Builds the web UI into `dist/`, or with `--tests` its unit tests into `dist-test/`.

import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

/** Limit of JavaScript on first load, in bytes of gzip. */
const FIRST_LOAD_LIMIT = 60 * 1024;

/** Global object through which the first load shares modules with lazy files. */
const SHARED = "globalThis.greenroom";

/** Icons of the tab: plain, working, waiting, failed, and finished unseen. */
const ICONS = ["favicon.svg", "favicon-working.svg", "favicon-waiting.svg", "favicon-failed.svg", "favicon-done.svg"];

/** Changes to the terminal emulator: text in its file, replacement, and number of places. */
const EMULATOR_CHANGES = [
  // The content policy blocks style elements. `src/terminal/adoptedStyle.ts` replaces them.
  ['createElement("style")', 'createElement("adopted-style")', 3],
  // The policy blocks this way to set styles, but not the one through the object model.
  ['t.setAttribute("style",', 'Reflect.set(t.style,"cssText",', 1],
];

/** Makes the emulator work under the page's content policy, and its style sheet a text. */
const emulatorPlugin = {
  name: "emulator",
  setup({ onLoad }) {
    onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, async ({ path }) => {
      let contents = await readFile(path, "utf8");
      for (const [text, replacement, places] of EMULATOR_CHANGES) {
        const parts = contents.split(text);
        if (parts.length !== places + 1) throw new Error(`${path} has \`${text}\` ${parts.length - 1} times, not ${places}: adapt EMULATOR_CHANGES`);
        contents = parts.join(replacement);
      }
      return { contents, loader: "js" };
    });
    onLoad({ filter: /@xterm\/xterm\/css\/xterm\.css$/ }, async ({ path }) => ({ contents: await readFile(path, "utf8"), loader: "text" }));
  },
};

/** Exports of the markdown parser that the page uses. */
const PARSER_EXPORTS = ["Lexer", "Tokenizer"];

/**
 * Ready-made instance of the markdown parser, with its functions. The bundler keeps the statements,
 * because they change an object, and with them all code that makes HTML.
 */
const PARSER_INSTANCE = /var (\w+)=new \w+;function \w+\(\w+,\w+\)\{return \1\.parse\(.*?export\{(.*?)\}/s;

/** Leaves out what the page does not use of the markdown parser. */
const parserPlugin = {
  name: "parser",
  setup({ onLoad }) {
    onLoad({ filter: /marked\/lib\/marked\.esm\.js$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const contents = text.replace(PARSER_INSTANCE, (_all, _instance, names) => {
        const used = names.split(",").filter((name) => PARSER_EXPORTS.some((used) => name.endsWith(` as ${used}`)));
        return `export{${used}}`;
      });
      if (contents === text) throw new Error(`${path} has another ready-made instance: adapt PARSER_INSTANCE`);
      return { contents, loader: "js" };
    });
  },
};

const root = dirname(fileURLToPath(import.meta.url));
process.chdir(root);

const shared = {
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".svg": "text" },
  charset: "utf8",
  logLevel: "warning",
  plugins: [emulatorPlugin],
};

if (process.argv.includes("--tests")) await buildTests();
else await buildApp();

async function buildApp() {
  await rm("dist", { recursive: true, force: true });
  const { metafile } = await build({
    ...shared,
    plugins: [emulatorPlugin, parserPlugin],
    entryPoints: { app: "src/main.tsx", style: "src/styles/index.css" },
    outdir: "dist/assets",
    entryNames: "[name]-[hash]",
    chunkNames: "part-[name]-[hash]",
    splitting: true,
    minify: true,
    // Licences go into separate files, readable but not loaded by the page.
    legalComments: "linked",
    metafile: true,
  });

  const outputs = Object.entries(metafile.outputs);
  const fileOf = (source) => outputs.find(([, output]) => output.entryPoint === source)[0];
  const script = await joinFirstLoad(metafile, fileOf("src/main.tsx"));
  const style = fileOf("src/styles/index.css");

  const shell = (await readFile("index.html", "utf8"))
    .replace("{{script}}", `/assets/${basename(script)}`)
    .replace("{{style}}", `/assets/${basename(style)}`);
  await writeFile("dist/index.html", shell);
  for (const icon of ICONS) await copyFile(icon, `dist/${icon}`);
  await reportSizes(script, style);
}

/**
 * Joins the first load into one plain script and returns its file. Chromium caches the compiled
 * code of plain scripts between visits, not that of modules. Lazy files stay modules. Each shared
 * file becomes a stub that re-exports from the script.
 */
async function joinFirstLoad(metafile, entry) {
  const importsOf = (file, kind) => metafile.outputs[file].imports.filter((one) => one.kind === kind).map(({ path }) => path);
  const found = new Set([entry]);
  for (const file of found) for (const path of importsOf(file, "import-statement")) found.add(path);
  const lazyFiles = [...found].flatMap((file) => importsOf(file, "dynamic-import"));
  const parts = [...found].slice(1);

  const taken = parts.map((part, n) => `import * as part${n} from "./${basename(part)}";`);
  const left = parts.map((part, n) => `"${basename(part)}": part${n}`);
  const { metafile: joined } = await build({
    ...shared,
    stdin: {
      contents: `${taken.join("")} import "./${basename(entry)}"; ${SHARED} = { ${left.join(", ")} };`,
      resolveDir: dirname(entry),
    },
    format: "iife",
    external: lazyFiles.map((file) => `./${basename(file)}`),
    outdir: dirname(entry),
    entryNames: "app-[hash]",
    minify: true,
    // Only the address of the licence file stays in the script.
    legalComments: "inline",
    metafile: true,
  });
  await rm(entry);
  for (const part of parts) {
    const names = metafile.outputs[part].exports.join(",");
    await writeFile(part, `export const {${names}}=${SHARED}["${basename(part)}"];`);
  }
  return Object.keys(joined.outputs)[0];
}

async function reportSizes(script, style) {
  const gzipped = async (file) => gzipSync(await readFile(file)).length;
  const kib = (bytes) => `${(bytes / 1024).toFixed(1)} KiB`;
  const load = await gzipped(script);
  console.log(`first load: ${kib(load)} of JavaScript, ${kib(await gzipped(style))} of CSS (gzip)`);
  if (load <= FIRST_LOAD_LIMIT) return;
  console.error(`that is more JavaScript than ${kib(FIRST_LOAD_LIMIT)}: import the largest part lazily (\`await import(…)\`)`);
  process.exitCode = 1;
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
    // jsdom reads files beside its sources, so bundling breaks it.
    external: ["jsdom"],
    sourcemap: "inline",
  });
}
