// Small view of a picture, which opens the whole. Shows the name if the file is no picture.

import { useState } from "preact/hooks";

export function Thumbnail({ address, name }: { address: string; name: string }) {
  const [failed, setFailed] = useState(false);
  return (
    <a href={address} target="_blank" rel="noopener" title={name} class={failed ? undefined : "thumbnail"}>
      {failed ? name : <img src={address} alt={name} loading="lazy" decoding="async" onError={() => setFailed(true)} />}
    </a>
  );
}
