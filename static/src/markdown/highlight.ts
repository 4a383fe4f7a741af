// Syntax highlighting. Loaded only when code is on the screen.

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

/** Limit in characters. Highlighting longer code would block the page. */
const LIMIT = 50_000;

/** Emitter that builds elements instead of HTML, so code is text at every step. */
class SpanEmitter {
  readonly root = document.createDocumentFragment();
  private readonly within: ParentNode[] = [];
  private innermost: ParentNode = this.root;

  addText(text: string): void {
    this.innermost.append(text);
  }

  startScope(scope: string): void {
    this.within.push(this.innermost);
    this.innermost = this.span(classesOf(scope));
  }

  endScope(): void {
    this.innermost = this.within.pop() ?? this.root;
  }

  // Aliases in the library's interface.
  openNode = this.startScope;
  closeNode = this.endScope;

  /** Adds a nested language. A failed guess leaves plain text. */
  __addSublanguage({ root }: SpanEmitter, language: string | undefined): void {
    const place = language ? this.span(`language-${language}`) : this.innermost;
    place.append(root);
  }

  finalize(): void {}

  toHTML(): string {
    return "";
  }

  private span(classes: string): HTMLElement {
    const span = document.createElement("span");
    span.className = classes;
    this.innermost.append(span);
    return span;
  }
}

/** Returns the library's class names: `title.function` becomes `hljs-title function_`. */
function classesOf(scope: string): string {
  const [first, ...rest] = scope.split(".");
  return [`hljs-${first}`, ...rest.map((name, depth) => name + "_".repeat(depth + 1))].join(" ");
}

hljs.configure({ __emitter: SpanEmitter });
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Highlights a `code` element. Its class names the language. */
export function highlight(code: HTMLElement): void {
  const language = /language-(\S+)/.exec(code.className)?.[1];
  const text = code.textContent ?? "";
  if (!language || !hljs.getLanguage(language) || text.length > LIMIT) return;
  const { _emitter: spans, errorRaised } = hljs.highlight(text, { language, ignoreIllegals: true });
  // A failed run holds only the beginning of the code.
  if (!errorRaised && spans instanceof SpanEmitter) code.replaceChildren(spans.root);
}
