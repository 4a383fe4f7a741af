// Unified diff with old and new line numbers.

import { useMemo } from "preact/hooks";
import { diffLines, languageOf } from "../state/codeText";
import { CodeBlock } from "./CodeBlock";

export function Diff({ path, text }: { path: string; text: string }) {
  const lines = useMemo(() => diffLines(text), [text]);
  return <CodeBlock label="Diff" lines={lines} language={languageOf(path)} text={text} codeClass="diff" />;
}
