"""The table of `./dev clients all`: a row for each API or mode of a client, a column for each flow."""
LINE = "FLOW "  # begins each line in which the script of a client reports the outcome of a flow
# "auto", "required" and "named" are round trips of a tool call by the tool choice.
FLOWS = ("plain", "stream", "auto", "required", "named", "structured", "logprobs")


class Row:
    """One API or mode of a client. `problem`: why the client has no outcomes."""

    def __init__(self, client, api="", problem=""):
        self.client = client
        self.api = api
        self.problem = problem
        self.reports = {}

    def add(self, report):
        self.reports[report["flow"]] = report

    def outcome(self, flow):
        return self.reports[flow]["outcome"] if flow in self.reports else "MISSING"

    def slowest(self):
        """The seconds of the slowest flow."""
        return max((report["seconds"] for report in self.reports.values()), default=0)

    def failed(self):
        return bool(self.problem) or any(self.outcome(flow) not in ("ok", "-") for flow in FLOWS)

    def failures(self):
        if self.problem:
            return [f"{self.client}: {self.problem}"]
        reasons = {flow: self.reports.get(flow, {}).get("reason", "the script did not report it") for flow in FLOWS}
        return [f"{self.client}, {self.api}, {flow}: {self.outcome(flow)}: {reasons[flow]}"
                for flow in FLOWS if self.outcome(flow) not in ("ok", "-")]


def format_table(rows, packages):
    """Markdown. "MISSING": the script ended early; "-": the client does not offer the flow."""
    lines = ["| client | API | " + " | ".join(FLOWS) + " |", "|---" * (len(FLOWS) + 2) + "|"]
    named = set()
    for row in rows:
        name = "" if row.client in named else " ".join(packages[row.client])
        named.add(row.client)
        cells = [row.problem] if row.problem else [row.outcome(flow) for flow in FLOWS]
        lines.append(f"| {name} | {row.api} | " + " | ".join(cells) + " |")
    reasons = {}
    for row in rows:
        for flow, report in row.reports.items():
            if report["outcome"] == "-":
                reasons.setdefault((row.client, row.api, report["reason"]), []).append(flow)
    lines += ["", "Not offered by the client:"]
    lines += [f"- {client}, {api}: {', '.join(flows)}: {reason}" for (client, api, reason), flows in reasons.items()]
    return "\n".join(lines)
