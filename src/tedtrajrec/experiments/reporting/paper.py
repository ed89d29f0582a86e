"""What the paper prints: its methods, datasets and main table, beside which our own figures are read."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One of the paper's metrics."""

    name: str  # in rows
    label: str
    digits: int
    higher: bool  # is better


METRICS = (
    Metric("recall", "Recall", 3, True),
    Metric("precision", "Precision", 3, True),
    Metric("f1", "F1", 3, True),
    Metric("accuracy", "Accuracy", 3, True),
    Metric("mae_m", "MAE m", 0, False),
    Metric("rmse_m", "RMSE m", 0, False),
)
"""In the order of the paper's tables."""

FAMILIES: dict[str, dict[str, str]] = {
    "Two-stage": {
        "linear_hmm": "Linear + HMM",
        "trimpute_hmm": "TrImpute + HMM",
        "dhtr_hmm": "DHTR + HMM",
        "teri_hmm": "TERI + HMM",
    },
    "End-to-end": {
        "neutraj": "NeuTraj + Decoder",
        "gts": "GTS + Decoder",
        "trajgat": "TrajGAT + Decoder",
        "trajformer": "TrajFormer + Decoder",
        "start": "START + Decoder",
        "jgrm": "JGRM + Decoder",
        "mtrajrec": "MTrajRec",
        "rntrajrec": "RNTrajRec",
        "mm_stged": "MM-STGED",
        "tedtrajrec": "TedTrajRec",
    },
    "Newer than the paper": {"mask_transformer": "Mask Transformer", "trmma": "TRMMA"},
    "Route search and memory": {"route_hmm": "route_hmm", "lookup": "lookup"},
    "All steps at once": {"tedtrajrec_parallel": "tedtrajrec_parallel"},
}
"""Families of methods and the names of these in tables, in the paper's order; the last three are not in the paper."""

OTHER_FAMILY = "Other methods"

PUBLISHED = tuple(name for family in ("Two-stage", "End-to-end", "Newer than the paper") for name in FAMILIES[family])
"""Methods that others have published, TedTrajRec among them."""


class Published(NamedTuple):
    """A dataset of the paper."""

    label: str
    step_s: int
    segments: int
    train: int  # trips
    valid: int
    test: int
    area: str


DATASETS = {
    "shanghai": Published("Shanghai-L", 10, 34_986, 104_962, 14_994, 29_989, "23.0 x 30.8 km"),
    "chengdu": Published("Chengdu", 12, 8_781, 105_879, 15_125, 30_252, "8.3 x 8.3 km"),
    "porto": Published("Porto", 15, 12_613, 110_261, 15_751, 31_504, "6.8 x 7.2 km"),
}

TABLE: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("chengdu", "1/8"): {
        "linear_hmm": (0.6597, 0.6166, 0.6351, 0.4916, 358.24, 594.32),
        "trimpute_hmm": (0.6644, 0.6306, 0.645, 0.5083, 381.72, 620.64),
        "dhtr_hmm": (0.6385, 0.7149, 0.6714, 0.5501, 252.31, 435.17),
        "teri_hmm": (0.743, 0.6803, 0.7076, 0.5468, 252.16, 448.33),
        "neutraj": (0.7795, 0.8731, 0.8214, 0.6407, 145.48, 238.28),
        "gts": (0.7746, 0.8788, 0.8212, 0.6399, 145.87, 241.44),
        "trajgat": (0.7778, 0.8733, 0.8207, 0.6414, 146.7, 242.59),
        "trajformer": (0.7726, 0.879, 0.8203, 0.6506, 139.8, 230.94),
        "start": (0.7827, 0.8824, 0.8275, 0.668, 132.29, 223.09),
        "jgrm": (0.781, 0.8959, 0.8325, 0.6594, 134.4, 222.92),
        "mtrajrec": (0.7701, 0.8694, 0.8144, 0.636, 150.6, 247.21),
        "rntrajrec": (0.7813, 0.8851, 0.8278, 0.6628, 133.08, 221.74),
        "mm_stged": (0.7849, 0.8822, 0.8287, 0.6655, 134.12, 228.75),
        "tedtrajrec": (0.8247, 0.8936, 0.8561, 0.7301, 108.33, 192.22),
    },
    ("chengdu", "1/16"): {
        "linear_hmm": (0.4821, 0.4379, 0.4564, 0.2858, 525.96, 760.47),
        "trimpute_hmm": (0.4981, 0.4671, 0.4797, 0.2933, 535.95, 777.61),
        "dhtr_hmm": (0.508, 0.693, 0.5821, 0.413, 325.14, 511.62),
        "teri_hmm": (0.7066, 0.6593, 0.6792, 0.4294, 311.45, 501.59),
        "neutraj": (0.6771, 0.8466, 0.7492, 0.5182, 213.43, 324.37),
        "gts": (0.6739, 0.8615, 0.753, 0.5188, 212.1, 321.76),
        "trajgat": (0.6793, 0.8511, 0.7523, 0.5283, 206.92, 317.52),
        "trajformer": (0.6816, 0.85, 0.7534, 0.5166, 211.94, 327.09),
        "start": (0.6926, 0.8544, 0.762, 0.5442, 193.66, 298.37),
        "jgrm": (0.6936, 0.8753, 0.7709, 0.551, 186.9, 292.26),
        "mtrajrec": (0.6714, 0.8473, 0.746, 0.5152, 216.37, 327.37),
        "rntrajrec": (0.6889, 0.8712, 0.7663, 0.5378, 198.75, 306.19),
        "mm_stged": (0.6794, 0.8479, 0.7511, 0.5464, 192.68, 300.6),
        "tedtrajrec": (0.7191, 0.8789, 0.7882, 0.5943, 171.19, 274.68),
    },
    ("porto", "1/8"): {
        "linear_hmm": (0.5837, 0.5473, 0.5629, 0.3624, 175.0, 284.16),
        "trimpute_hmm": (0.5832, 0.552, 0.565, 0.3639, 176.51, 289.07),
        "dhtr_hmm": (0.5578, 0.6837, 0.6118, 0.425, 104.41, 168.83),
        "teri_hmm": (0.6255, 0.5592, 0.5877, 0.337, 133.11, 212.47),
        "neutraj": (0.6709, 0.7878, 0.7219, 0.5075, 107.12, 159.03),
        "gts": (0.6706, 0.8006, 0.7272, 0.5139, 102.87, 152.05),
        "trajgat": (0.6741, 0.7823, 0.7216, 0.5026, 109.99, 162.89),
        "trajformer": (0.6663, 0.8145, 0.7305, 0.5313, 96.86, 143.93),
        "start": (0.6789, 0.8107, 0.7365, 0.5332, 95.52, 141.92),
        "jgrm": (0.6717, 0.8142, 0.7338, 0.5315, 94.8, 140.32),
        "mtrajrec": (0.6742, 0.7833, 0.7219, 0.4989, 110.72, 163.45),
        "rntrajrec": (0.6833, 0.8106, 0.7392, 0.5365, 94.15, 139.94),
        "mm_stged": (0.6917, 0.8116, 0.7402, 0.5376, 93.02, 136.95),
        "tedtrajrec": (0.7097, 0.812, 0.7554, 0.5852, 79.49, 123.86),
    },
    ("shanghai", "1/8"): {
        "linear_hmm": (0.6055, 0.5633, 0.5801, 0.3825, 383.25, 555.68),
        "trimpute_hmm": (0.7649, 0.7304, 0.7443, 0.5992, 243.59, 403.69),
        "dhtr_hmm": (0.5144, 0.6533, 0.5696, 0.3974, 308.72, 454.87),
        "teri_hmm": (0.7239, 0.5885, 0.6438, 0.4995, 249.88, 464.37),
        "neutraj": (0.7435, 0.7907, 0.7606, 0.5878, 201.59, 311.78),
        "gts": (0.7527, 0.8101, 0.7749, 0.6041, 183.11, 282.96),
        "trajgat": (0.7388, 0.8022, 0.7636, 0.5884, 200.27, 310.89),
        "trajformer": (0.7383, 0.8402, 0.7811, 0.624, 172.46, 269.57),
        "start": (0.7408, 0.8726, 0.7969, 0.637, 161.57, 254.62),
        "jgrm": (0.7633, 0.8795, 0.8135, 0.657, 153.35, 239.3),
        "mtrajrec": (0.714, 0.7677, 0.7334, 0.5561, 219.29, 332.19),
        "rntrajrec": (0.7475, 0.8562, 0.7938, 0.6392, 162.67, 257.06),
        "mm_stged": (0.7512, 0.8524, 0.794, 0.6388, 157.93, 252.29),
        "tedtrajrec": (0.8057, 0.8944, 0.8447, 0.7321, 129.06, 225.08),
    },
}
"""The main table: by dataset and keep, and by method, the six metrics in the order of METRICS."""


def label_of(method: str) -> str:
    """Return the name of a method in tables; that of an unknown one is its own."""
    return next((names[method] for names in FAMILIES.values() if method in names), method)


def family_of(method: str) -> str:
    """Return the family of a method."""
    return next((family for family, names in FAMILIES.items() if method in names), OTHER_FAMILY)


def order_of(method: str) -> int:
    """Return the place of a method in tables; unknown ones come last."""
    known = [name for names in FAMILIES.values() for name in names]
    return known.index(method) if method in known else len(known)
