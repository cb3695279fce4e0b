// Browsers start no workers for pages that are opened from the disk. There, and only there, the search runs in a hidden
// frame that answers as a worker would; from a server it stays a real worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      this.ready = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
      const script = new URL(address, location.href).href.replaceAll('"', "%22");
      this.frame.srcdoc = `<script>
        self.postMessage = (data) => parent.dispatchEvent(new CustomEvent("from-search", { detail: data }));
        self.importScripts = (...files) => Promise.all(files.map((file) => new Promise((done, fail) => {
          const made = document.createElement("script");
          made.src = file; made.onload = done; made.onerror = fail;
          document.head.append(made);
        })));
      <\/script><script src="${script}"><\/script>`;
      window.addEventListener("from-search", (event) => {
        const told = new MessageEvent("message", { data: event.detail });
        this.dispatchEvent(told);
        if (this.onmessage) this.onmessage(told);
      });
      document.documentElement.append(this.frame);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inner = this.frame.contentWindow;
        inner.dispatchEvent(new inner.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.IFrameWorker = window.Worker; // by this name the search knows where its language files are
}
