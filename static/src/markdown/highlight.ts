// Colours code. Loaded only when there is code on the screen.

import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = {
  bash, c, cpp, css, diff, dockerfile, go, ini, java, javascript, json, python, ruby, rust, sql, typescript, xml, yaml,
};

/** Longer code is left plain: colouring it would hold the page up. */
const LIMIT = 50_000;

for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Colours one `code` element that says its language by its class. */
export function highlight(code: HTMLElement): void {
  const language = /language-(\S+)/.exec(code.className)?.[1];
  const text = code.textContent ?? "";
  if (!language || !hljs.getLanguage(language) || text.length > LIMIT) return;
  code.innerHTML = hljs.highlight(text, { language, ignoreIllegals: true }).value;
}
