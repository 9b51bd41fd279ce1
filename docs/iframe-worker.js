// Search runs in a web worker, and browsers do not start workers for pages opened from disk.
// There, a hidden frame stands in for the worker: it loads the same script and passes the same
// messages. The name of this file matters: the "offline" plugin of mkdocs-material would load a
// script of that name from the network if none were given.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.queue = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      // What the worker's script calls to answer.
      scope.postMessage = (data) => {
        this.dispatchEvent(new MessageEvent("message", { data }));
      };
      const script = scope.document.createElement("script");
      script.src = url;
      script.onload = () => this.deliver();
      script.onerror = () => this.dispatchEvent(new Event("error"));
      scope.document.head.append(script);
    }

    postMessage(data) {
      // Until the script has loaded there is nobody to receive messages.
      if (this.queue) this.queue.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    deliver() {
      const queued = this.queue;
      this.queue = null;
      queued.forEach((data) => this.postMessage(data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
