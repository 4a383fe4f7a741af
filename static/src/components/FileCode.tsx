// Content of a file, numbered and coloured by its path.

import { useMemo } from "preact/hooks";
import { fileLines, languageOf } from "../state/codeText";
import { CodeBlock } from "./CodeBlock";

interface FileCodeProps {
  path: string;
  text: string;
  /** Size of a truncated file in bytes. */
  whole?: number | undefined;
}

export function FileCode({ path, text, whole }: FileCodeProps) {
  const lines = useMemo(() => fileLines(text, whole), [text, whole]);
  return <CodeBlock label="File" lines={lines} language={languageOf(path)} text={text} />;
}
