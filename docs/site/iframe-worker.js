// Search without a server: browsers start no worker from a file, so its script runs in a hidden frame.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.ready = new Promise((loaded) => {
      frame.addEventListener("load", () => this.begin(frame.contentWindow, url).then(loaded), { once: true });
    });
    document.body.append(frame);
  }

  async begin(inside, url) {
    const load = (src) =>
      new Promise((loaded, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src, onload: loaded, onerror: failed });
        inside.document.head.append(script);
      });
    inside.importScripts = async (...urls) => {
      for (const each of urls) await load(each);
    };
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    await load(url);
    return inside;
  }

  postMessage(data) {
    this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
