#!/usr/bin/env python3
"""Checks every variant of deploy/kubernetes as kustomize renders it. `./dev manifests` runs this test.

- Each object passes the schemas of the oldest and the newest Kubernetes in VERSIONS.
- A worker's pod has as many GPUs as its configuration names, and enough time to drain.
- The containers' command lines, with the files of the ConfigMap, start real processes, which answer a
  prompt over TLS with a key, and no prompt without, and end with status 0 after SIGTERM. The Secrets that
  README.md names are made for the test. Replaced are only addresses, the model (a tiny one), the size of
  the KV arena, and GPUs, by CPUs: the number of ranks stays.

Usage: manifests_test.py FOLDER_OF_PROGRAMS [VARIANT]... Needs kubectl, and the Python package kubernetes-validate."""
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import kubernetes_validate
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MANIFESTS = os.path.join(ROOT, "deploy/kubernetes")
PARTS = ("base", "hosts")  # not variants: incomplete alone
MODEL = os.path.join(ROOT, "tests/data/tiny/llama_gqa")  # 8 heads, 2 KV heads, for 1, 2 or 4 ranks
VERSIONS = ("1.30", "1.37")
GPU = "nvidia.com/gpu"
START_LIMIT = 120  # seconds
LOCAL = "127.0.0.1:0"


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def variants():
    return sorted(name for name in os.listdir(MANIFESTS)
                  if name not in PARTS and os.path.exists(os.path.join(MANIFESTS, name, "kustomization.yaml")))


def rendered(variant):
    text = subprocess.run(["kubectl", "kustomize", os.path.join(MANIFESTS, variant)],
                          check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


GROUP_FIELDS = {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"}
TEMPLATE_FIELDS = {"leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy"}


def validate(item):
    """Checks an object against the schemas. Those of Kubernetes have no LeaderWorkerSet: of it, the fields
    that its own API has (leaderworkerset.x-k8s.io/v1), and each of its pods."""
    checked = [item]
    if item["kind"] == "LeaderWorkerSet":
        check(item["apiVersion"] == "leaderworkerset.x-k8s.io/v1", f"apiVersion is {item['apiVersion']}")
        group = item["spec"]["leaderWorkerTemplate"]
        for fields, known in ((item["spec"], GROUP_FIELDS), (group, TEMPLATE_FIELDS)):
            check(set(fields) <= known, f"a LeaderWorkerSet has no {sorted(set(fields) - known)}")
        check(group["restartPolicy"] == "RecreateGroupOnPodRestart", "a group must start again as a whole")
        checked = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **group[name]["metadata"]},
                    "spec": group[name]["spec"]} for name in ("leaderTemplate", "workerTemplate")]
    for one in checked:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)


def workloads(objects):
    """The pods' specifications by the names of their workloads; of a group of pods, the leader's."""
    pods = {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in objects
            if item["kind"] in ("Deployment", "StatefulSet")}
    for item in objects:
        if item["kind"] == "LeaderWorkerSet":
            pods[item["metadata"]["name"]] = item["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    return pods


def groups(objects):
    """The LeaderWorkerSets' templates by name."""
    return {item["metadata"]["name"]: item["spec"]["leaderWorkerTemplate"] for item in objects
            if item["kind"] == "LeaderWorkerSet"}


def config_files(objects, pod):
    """The files of the ConfigMap that the pod mounts: name to text."""
    names = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    maps = [item["data"] for item in objects
            if item["kind"] == "ConfigMap" and item["metadata"]["name"] in names]
    check(len(names) == len(maps) == 1, f"the pod mounts the ConfigMaps {names}, of which {len(maps)} exist")
    return maps[0]


def merged(files):
    """The settings of a worker: a later file overrides single settings of an earlier one."""
    result = {}
    for text in files:
        for key, value in yaml.safe_load(text).items():
            if isinstance(value, dict):
                result.setdefault(key, {}).update(value)
            else:
                result[key] = value
    return result


def check_secrets(pod, security):
    """Every file that the configuration takes from a Secret is in a volume that the pod mounts."""
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    files = [value for value in [*security.values(), *security.get("tls", {}).values()]
             if isinstance(value, str)]
    check(files, "the pod's configuration names no secret")
    for file in files:
        check(os.path.dirname(file) in mounts, f"{file} is not in a volume of the pod")


def check_pod(pod, files, group):
    """Returns the settings of the pod's engine, and the number of ranks. `group`: of which the pod is the
    leader, or None."""
    words = pod["containers"][0]["command"]
    settings = merged(files[os.path.basename(word)] for word in words if word.startswith("/config/"))
    grace = pod["terminationGracePeriodSeconds"]
    drain = settings["process"]["drain_seconds"] + settings.get("drain_grace_seconds", 0)
    check(grace > drain, f"terminationGracePeriodSeconds is {grace}; a drain takes up to {drain} s")
    engine = settings.get("engine", {})
    devices = engine.get("devices", [engine.get("device", "cpu")])
    gpus = [device for device in devices if device != "cpu"]
    given = pod["containers"][0]["resources"].get("limits", {}).get(GPU, 0)
    ranks = engine.get("tensor_parallel", 1) * engine.get("pipeline_parallel", 1)
    pods = group["size"] if group else 1
    check(pods * given == len(gpus), f"{pods} pods have {given} GPUs each; their configuration names {gpus}")
    check(gpus == [f"cuda:{number}" for number in range(given)] * pods, f"{gpus} are not the pods' GPUs")
    if group:
        check(ranks == pods, f"{pods} pods have {ranks} ranks")
        check_group(pod, group)
    if "devices" in engine:
        check(ranks == len(devices), f"{ranks} ranks have {len(devices)} devices")
        mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
        check("/dev/shm" in mounts, "NCCL needs a larger /dev/shm")
        check(pod.get("shareProcessNamespace"), "followers cannot kill a leader that is process 1")
    image = pod["containers"][0]["image"]
    check_secrets(pod, settings.get("security", {}))
    check(("cuda" in image) == bool(gpus), f"the image of a pod with {given} GPUs is {image}")
    return engine, ranks


def check_group(leader, group):
    """The other pods have what a rank needs, which is what the leader pod has, and wait for mpirun."""
    other = group["workerTemplate"]["spec"]
    for part in ("image", "resources", "volumeMounts"):
        check(other["containers"][0][part] == leader["containers"][0][part], f"the pods differ in {part}")
    check(other["volumes"] == leader["volumes"], "the pods differ in their volumes")
    check(other["terminationGracePeriodSeconds"] == leader["terminationGracePeriodSeconds"],
          "a rank must live while its worker drains")
    check(other["containers"][0]["command"][:3] == ["baton", "host", "serve"],
          "nobody waits for mpirun in the group's other pods")


def byte_tokenizer():
    """A tokenizer of bytes, in GPT-2's alphabet: the tiny model has none of its own."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {**{byte: chr(byte) for byte in printable},
                **{byte: chr(256 + at) for at, byte in enumerate(others)}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocabulary = {alphabet[byte]: byte for byte in range(256)}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}


def make_secrets(programs, folder):
    """The content of the Secrets that README.md names, as files below `folder`; returns a client's key."""
    def baton(*words):
        return subprocess.run([os.path.join(programs, "baton"), *words],
                              check=True, capture_output=True, text=True).stdout

    for name in ("cluster", "keys", "tls"):
        os.makedirs(os.path.join(folder, "secrets", name))
    with open(os.path.join(folder, "secrets/cluster/secret"), "w", encoding="utf-8") as out:
        out.write(baton("key", "secret"))
    key = baton("key", "add", "client", "--file", os.path.join(folder, "secrets/keys/api_keys.json")).strip()
    baton("key", "add", "operator", "--file", os.path.join(folder, "secrets/keys/admin_keys.json"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                    "-keyout", os.path.join(folder, "secrets/tls/tls.key"),
                    "-out", os.path.join(folder, "secrets/tls/tls.crt")], check=True, capture_output=True)
    return key


class Program:
    """A container's process. Its stderr goes to a file that is printed when the test fails."""

    def __init__(self, programs, folder, name, pod, overrides, environment=None):
        container = pod["containers"][0]
        words = [word.replace("$(POD_NAME)", name).replace("$(POD_IP)", "127.0.0.1")
                 for word in container["command"] + container.get("args", [])]
        words = [word.replace("/config/", folder + "/", 1) if word.startswith("/config/") else word
                 for word in words]
        words = [word.replace("/secrets/", folder + "/secrets/") for word in words]
        words[0] = os.path.join(ROOT, "deploy" if words[0].endswith(".sh") else programs, words[0])
        for override in overrides:
            words += ["--set", override]
        self.name = name
        self.log = os.path.join(folder, name + ".log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True,
                                            start_new_session=True, env={**os.environ, **(environment or {})})
        self.addresses = {}

    def await_ready(self):
        """Reads the line `ready {…}` with the process' addresses."""
        watchdog = threading.Timer(START_LIMIT, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        check(line.startswith("ready "), f"{self.name} did not start")
        self.addresses = json.loads(line[len("ready "):])

    def descendants(self, name):
        """How many processes of the program `name` this one has started, itself or through others."""
        def count(parent):
            with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
                children = file.read().split()
            found = 0
            for child in children:
                found += (os.path.basename(os.readlink(f"/proc/{child}/exe")) == name) + count(child)
            return found
        return count(self.process.pid)


def answer(http, trust, key):
    """The router's answer to a prompt, once workers have joined it."""
    # Greedy: sampled tokens end the answer of a random model early once in a while.
    body = json.dumps({"prompt": "The baton goes", "max_tokens": 8, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"https://{http}/v1/completions", body, headers)
    with urllib.request.urlopen(request, timeout=START_LIMIT, context=trust) as response:
        return json.load(response)


def check_strangers(http, trust):
    """Without a key, or with another one, there is no answer and no page."""
    for key in ("", "baton-another"):
        try:
            answer(http, trust, key)
            raise AssertionError(f"the key \"{key}\" gets an answer")
        except urllib.error.HTTPError as error:
            check(error.code == 401, f"the key \"{key}\" gets status {error.code}")
    for path in ("/", "/metrics", "/status.json"):
        try:
            with urllib.request.urlopen(f"https://{http}{path}", timeout=10, context=trust):
                raise AssertionError(f"{path} needs no key")
        except urllib.error.HTTPError as error:
            check(error.code == 401, f"{path} answers {error.code} without a key")


def await_probe(program, pod, trust):
    """Awaits the pod's readiness probe."""
    probe = pod["containers"][0]["readinessProbe"]["httpGet"]
    url = f"{probe.get('scheme', 'HTTP').lower()}://{program.addresses['http']}{probe['path']}"
    deadline = time.monotonic() + START_LIMIT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10, context=trust):
                return
        except urllib.error.HTTPError as error:
            check(time.monotonic() < deadline, f"{url} answers {error.code}: {error.read().decode()}")
        time.sleep(0.1)


def group_environment(programs, folder, agent):
    """The environment of mpirun where the group's other pod is this machine, where it reaches `agent`."""
    script = os.path.join(folder, "host_agent.sh")
    with open(script, "w", encoding="utf-8") as out:
        out.write(f"#!/bin/sh\n[ $1 = baton-decode-0-1.baton-decode.baton ] || exit 1\nshift\n"
                  f"exec {programs}/baton host run --secret-file {folder}/secrets/cluster/secret "
                  f"--port {agent.rpartition(':')[2]} 127.0.0.1 \"$@\"\n")
    os.chmod(script, 0o755)
    return {"LWS_LEADER_ADDRESS": "baton-decode-0.baton-decode.baton", "LWS_GROUP_SIZE": "2",
            "HOST_AGENT": script, "PATH": f"{programs}:{os.environ['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # Two hosts on one machine have no shared memory in common, and need no network.
            "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo"}


def start_other_pod(programs, folder, name, group):
    """Starts the second pod of a group. Returns it, and the environment in which the leader reaches it."""
    pod = group["workerTemplate"]["spec"]
    words = pod["containers"][0]["command"]
    words[words.index("--listen") + 1] = LOCAL
    own_files = os.path.join(folder, "other-pod")
    os.makedirs(own_files)
    other = Program(programs, folder, name + "-0-1", pod, [],
                    {"TMPDIR": own_files, "PATH": f"{programs}:{os.environ['PATH']}"})
    other.await_ready()
    return other, group_environment(programs, folder, other.addresses["ranks"])


def run_cluster(programs, folder, pods, engines, pod_groups):
    key = make_secrets(programs, folder)
    trust = ssl.create_default_context(cafile=os.path.join(folder, "secrets/tls/tls.crt"))
    common = [f"model.path={folder}/model", f"process.http_listen={LOCAL}"]
    started = []
    try:
        router = Program(programs, folder, "baton-router", pods["baton-router"], common + [
            f"listen={LOCAL}", f"worker_listen={LOCAL}", f"admin_listen={LOCAL}", "drain_grace_seconds=0"])
        started.append(router)
        router.await_ready()
        for name in ("baton-prefill", "baton-decode"):
            engine, ranks = engines[name]
            on_cpu = ["engine.device=cpu", "engine.threads=1", "engine.kv_blocks=64"]
            if "devices" in engine:
                on_cpu.append(f"engine.devices=[{', '.join(['cpu'] * ranks)}]")
            environment = {}
            if name in pod_groups:
                other, environment = start_other_pod(programs, folder, name, pod_groups[name])
                started.append(other)
            worker = Program(programs, folder, name, pods[name], common + on_cpu + [
                f'routers=["{router.addresses["workers"]}"]', f"kv_listen={LOCAL}", "transfer.tcp_port=0"],
                environment)
            started.append(worker)
            worker.await_ready()
            here = ranks // 2 if name in pod_groups else ranks - 1
            check(worker.descendants(name) == here, f"{name} has {worker.descendants(name)} ranks below it")
            if name in pod_groups:
                check(other.descendants(name) == 1, "the group's other pod has no rank")
            await_probe(worker, pods[name], trust)
        await_probe(router, pods["baton-router"], trust)
        check_strangers(router.addresses["http"], trust)
        used = answer(router.addresses["http"], trust, key)["usage"]["completion_tokens"]
        check(used == 8, f"the answer has {used} tokens instead of 8")
        for program in reversed(started):
            program.process.send_signal(signal.SIGTERM)
            status = program.process.wait(START_LIMIT)
            check(status == 0, f"{program.name} ended with status {status} after SIGTERM")
    except BaseException:
        for program in started:
            with open(program.log, encoding="utf-8") as log:
                print(f"--- {program.name}\n{log.read()}")
        raise
    finally:
        for program in started:
            try:  # with what a script has started
                os.killpg(program.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            program.process.wait()


def check_variant(variant, programs):
    objects = rendered(variant)
    for item in objects:
        validate(item)
    pods = workloads(objects)
    pod_groups = groups(objects)
    check(sorted(pods) == ["baton-decode", "baton-prefill", "baton-router"], f"the workloads are {sorted(pods)}")
    engines = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, pod in pods.items():
            files = config_files(objects, pod)
            engines[name] = check_pod(pod, files, pod_groups.get(name))
            for file, text in files.items():
                with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                    out.write(text.replace("/secrets/", f"{folder}/secrets/"))
        shutil.copytree(MODEL, os.path.join(folder, "model"))
        with open(os.path.join(folder, "model/tokenizer.json"), "w", encoding="utf-8") as out:
            json.dump(byte_tokenizer(), out)
        run_cluster(programs, folder, pods, engines, pod_groups)
    return len(objects), engines["baton-decode"][1]


def main():
    programs = os.path.abspath(sys.argv[1])
    names = sys.argv[2:] or variants()
    check(names, f"{MANIFESTS} has no variant")
    failed = 0
    for variant in names:
        try:
            objects, ranks = check_variant(variant, programs)
            print(f"{variant}: {objects} objects; a cluster of its processes, {ranks} per worker, answers")
        except Exception as error:  # the next variant is checked all the same
            failed += 1
            print(f"Error: {variant}: {type(error).__name__}: {error}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
