// Small view of a picture, which opens the whole. Shows the name if the file is no picture.

import { useEffect, useState } from "preact/hooks";
import { fetchBlob } from "../wire/lazyRest";

export function Thumbnail({ address, name }: { address: string; name: string }) {
  const [failed, setFailed] = useState(false);
  const source = usePicture(address, () => setFailed(true));
  return (
    <a href={address} target="_blank" rel="noopener" title={name} class={failed ? undefined : "thumbnail"}>
      {failed ? name : <img src={source} alt={name} decoding="async" onError={() => setFailed(true)} />}
    </a>
  );
}

/**
 * Returns a local address of a picture, once it has arrived. The browser loads no picture with the
 * page's secret by itself. A local address stays as it is.
 */
function usePicture(address: string, onFailure: () => void): string | undefined {
  const [source, setSource] = useState<string>();
  const isLocal = address.startsWith("blob:");
  useEffect(() => {
    if (isLocal) return;
    const closing = new AbortController();
    let local: string | undefined;
    void fetchBlob(address, closing.signal).then(
      (picture) => {
        if (!closing.signal.aborted) setSource((local = URL.createObjectURL(picture)));
      },
      () => !closing.signal.aborted && onFailure(),
    );
    return () => {
      closing.abort();
      if (local) URL.revokeObjectURL(local);
    };
  }, [address]);
  return isLocal ? address : source;
}
