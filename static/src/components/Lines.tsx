// Text in lines, as code without numbers.

import { useMemo } from "preact/hooks";
import { plainLines } from "../state/codeText";
import { CodeBlock } from "./CodeBlock";

interface LinesProps {
  label: string;
  text: string;
  language: string;
}

export function Lines({ label, text, language }: LinesProps) {
  const lines = useMemo(() => plainLines(text), [text]);
  return <CodeBlock label={label} lines={lines} language={language} text={text} />;
}
