// Answer of the server for one view, with its error and a reload.

import { useEffect, useState } from "preact/hooks";

export interface Fetched<T> {
  value: T | null;
  problem: string;
  reload: () => Promise<void>;
  /** Runs a change, then loads again. */
  change: (act: () => Promise<void>) => Promise<void>;
}

export function useFetched<T>(load: () => Promise<T>, keys: readonly unknown[] = []): Fetched<T> {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState("");
  const change = async (act: () => Promise<void>) => {
    try {
      await act();
      setValue(await load());
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const reload = () => change(async () => {});
  useEffect(() => void reload(), keys);
  return { value, problem, reload, change };
}
