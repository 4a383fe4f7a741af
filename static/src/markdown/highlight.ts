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

/** Limit in characters. Highlighting more code would block the page. The rest stays plain. */
const LIMIT = 50_000;
/** Limit for one line in characters. A longer line stays plain. */
const LONGEST_LINE = 2000;

/** Piece of highlighted code: plain text, or a span with a class. */
export type CodePiece = string | CodeSpan;

export interface CodeSpan {
  className: string;
  pieces: CodePiece[];
}

/** Emitted step: a text, the beginning of a span, or the end of a span (`null`). */
type EmittedStep = string | { className: string } | null;

/** Emitter that records steps instead of HTML, so code is text at every step. */
class StepEmitter {
  readonly steps: EmittedStep[] = [];

  addText(text: string): void {
    this.steps.push(text);
  }

  startScope(scope: string): void {
    this.steps.push({ className: classesOf(scope) });
  }

  endScope(): void {
    this.steps.push(null);
  }

  // Aliases in the library's interface.
  openNode = this.startScope;
  closeNode = this.endScope;

  /** Adds a nested language. A failed guess leaves plain text. */
  __addSublanguage({ steps }: StepEmitter, language: string | undefined): void {
    if (language) this.steps.push({ className: `language-${language}` });
    for (const step of steps) this.steps.push(step);
    if (language) this.steps.push(null);
  }

  finalize(): void {}

  toHTML(): string {
    return "";
  }
}

/** Returns the library's class names: `title.function` becomes `hljs-title function_`. */
function classesOf(scope: string): string {
  const [first, ...rest] = scope.split(".");
  return [`hljs-${first}`, ...rest.map((name, depth) => name + "_".repeat(depth + 1))].join(" ");
}

hljs.configure({ __emitter: StepEmitter });
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/**
 * Highlights lines of code. `language`: a name, or the extension of a file. Unknown languages, long
 * lines and lines beyond the limit stay plain.
 */
export function highlightLines(lines: readonly string[], language: string | undefined): CodePiece[][] {
  const plain = lines.map((line): CodePiece[] => [line]);
  if (!language || !hljs.getLanguage(language)) return plain;
  const isShort = (line: string) => line.length <= LONGEST_LINE;
  const text = withinLimit(lines).map((line) => (isShort(line) ? line : "")).join("\n");
  const { _emitter: emitter, errorRaised } = hljs.highlight(text, { language, ignoreIllegals: true });
  // A failed run holds only the beginning of the code.
  if (errorRaised || !(emitter instanceof StepEmitter)) return plain;
  const coloured = linesOf(emitter.steps);
  return plain.map((line, n) => (isShort(lines[n]!) && coloured[n]) || line);
}

function withinLimit(lines: readonly string[]): readonly string[] {
  let chars = 0;
  const end = lines.findIndex((line) => (chars += Math.min(line.length, LONGEST_LINE) + 1) > LIMIT);
  return end < 0 ? lines : lines.slice(0, end);
}

/** Splits the steps into lines. A span over several lines is repeated on each. */
function linesOf(steps: readonly EmittedStep[]): CodePiece[][] {
  const lines: CodePiece[][] = [[]];
  const open: CodeSpan[] = [];
  const innermost = () => open.at(-1)?.pieces ?? lines.at(-1)!;
  const begin = (className: string) => {
    const span: CodeSpan = { className, pieces: [] };
    innermost().push(span);
    open.push(span);
  };
  const end = () => {
    const span = open.pop();
    if (span?.pieces.length === 0) innermost().pop();
    return span;
  };
  for (const step of steps) {
    if (step === null) end();
    else if (typeof step !== "string") begin(step.className);
    else {
      const [first = "", ...more] = step.split("\n");
      if (first) innermost().push(first);
      for (const line of more) {
        const names = open.map(({ className }) => className);
        while (open.length > 0) end();
        lines.push([]);
        names.forEach(begin);
        if (line) innermost().push(line);
      }
    }
  }
  return lines;
}
