"""Models: the fast trainer against an independent slow one, and what each model guarantees."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrank.data import Positives, RandomSplit
from calibrank.errors import DataError, FitError
from calibrank.metrics import NDCG
from calibrank.models import BPR, CML, NCF, UBPR, LightGCN, Training, train
from calibrank.models._run import initial_parameters
from calibrank.models.checkpoints import delete_if_damaged
from calibrank.models.engines import Graph, explain_out_of_memory
from calibrank.models.sampling import Sampler
from calibrank.models.validation import Validation
from calibrank.propensity import Uniform
from calibrank.registry import MODELS
from calibrank.tables import Interactions

SMALL = tuple(replace(model, dim=6) for model in MODELS.values())
USERS, ITEMS = 17, 11
SETTINGS = Training(epochs=3, batch=16, learning_rate=0.01, weight_decay=0.01)

ROOT = Path(__file__).parents[2]


def small_log(seed=0, density=0.3):
    """A log in which every user has a positive and every item but the first may have one."""
    rng = np.random.default_rng(seed)
    liked = rng.random((USERS, ITEMS)) < density
    liked[:, 0] = False
    liked[np.arange(USERS), 1 + np.arange(USERS) % (ITEMS - 1)] = True
    return Interactions(*np.nonzero(liked), None, USERS, ITEMS)


def all_pairs(n_users, n_items):
    """Users and items of every pair, user by user."""
    users, items = np.divmod(np.arange(n_users * n_items), n_items)
    return users, items


def name_of(model):
    return model.name


# ---- against an independent implementation ----


def dense_reference(model, log, training, seed):
    """The same steps in float64: a dense adjacency, one triple at a time, torch's own Adam."""
    sampler = Sampler(log, model.importance(log), seed, training.batch, Positives.of(log))
    start = initial_parameters(model, USERS + ITEMS, seed)
    table = torch.tensor(start.pop("table"), dtype=torch.float64, requires_grad=True)
    weights = {}
    for name, values in start.items():
        own = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        weights[name.removeprefix("weight.")] = own
    optimizer = torch.optim.Adam(
        [table, *weights.values()], lr=training.learning_rate, weight_decay=training.weight_decay
    )
    propagation = dense_propagation(model, log)
    for number in range(training.epochs):
        epoch = sampler.draw(number)
        for rows, importance in zip(epoch.rows, epoch.importance, strict=True):
            vectors = propagation @ table
            loss = torch.zeros((), dtype=torch.float64)
            for user, positive, negative, weight in zip(*rows, importance, strict=True):
                triple = vectors[user], vectors[positive], vectors[negative]
                loss = loss + float(weight) * triple_loss(model, *triple, weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if isinstance(model, CML):
                with torch.no_grad():
                    for row in table:
                        row /= max(1.0, float(row.norm()))
    trained = {name: values.detach().numpy() for name, values in weights.items()}
    return (propagation @ table).detach().numpy(), trained


def dense_propagation(model, log):
    """The mean of the powers of the normalized adjacency matrix; the identity without a graph."""
    if not isinstance(model, LightGCN):
        return torch.eye(USERS + ITEMS, dtype=torch.float64)
    adjacency = np.zeros((USERS + ITEMS, USERS + ITEMS))
    adjacency[log.users, log.items + USERS] = 1
    adjacency[log.items + USERS, log.users] = 1
    degree = np.maximum(adjacency.sum(1), 1)
    normalized = torch.tensor(adjacency / np.sqrt(degree[:, None] * degree[None, :]))
    powers = [torch.matrix_power(normalized, power) for power in range(model.layers + 1)]
    return sum(powers) / len(powers)


def triple_loss(model, user, positive, negative, weights):
    if isinstance(model, CML):
        difference = torch.dist(user, positive) ** 2 - torch.dist(user, negative) ** 2
        return torch.clamp(model.margin + difference, min=0)
    if isinstance(model, NCF):
        positive_probability = torch.sigmoid(neumf(user, positive, weights))
        negative_probability = torch.sigmoid(neumf(user, negative, weights))
        return -torch.log(positive_probability) - torch.log(1 - negative_probability)
    return -torch.log(torch.sigmoid(torch.dot(user, positive) - torch.dot(user, negative)))


def neumf(user, item, weights):
    half = len(user) // 2
    first = torch.cat([weights["from_user"], weights["from_item"]]).T
    hidden = torch.relu(first @ torch.cat([user[half:], item[half:]]) + weights["first_bias"][0])
    hidden = torch.relu(weights["second"].T @ hidden + weights["second_bias"][0])
    last = torch.cat([weights["last_product"], weights["last_network"]])[:, 0]
    return last @ torch.cat([user[:half] * item[:half], hidden]) + weights["last_bias"][0, 0]


@pytest.fixture
def without_loops(monkeypatch):
    """Train with torch alone, as where calibrank was installed without a C compiler."""
    monkeypatch.setattr("calibrank._internal.native.READY", False)
    monkeypatch.setattr("calibrank.models.validation.READY", False)


@pytest.mark.parametrize("engine", ["cpu", "torch", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "model", [*SMALL, LightGCN(dim=6, layers=1), LightGCN(dim=6, layers=3)], ids=repr
)
def test_training_takes_the_same_steps_as_dense_adam(model, engine, request):
    if engine == "torch":
        request.getfixturevalue("without_loops")
    device = "cuda" if engine == "cuda" else "cpu"
    log = small_log()
    scorer = train(model, log, training=replace(SETTINGS, device=device), seed=5).scorer
    vectors, weights = dense_reference(model, log, SETTINGS, 5)
    trained = np.concatenate([scorer.users, scorer.items])
    np.testing.assert_allclose(trained, vectors, rtol=2e-3, atol=2e-5)
    for name, values in weights.items():
        np.testing.assert_allclose(scorer.weights[name], values, rtol=2e-3, atol=2e-5)


# 2,300 steps. Several deferred steps are taken at once only after the first 1,000.
LONG = Training(epochs=46, batch=1, learning_rate=0.01, weight_decay=0.01)


@pytest.mark.parametrize("model", [BPR(dim=40), CML(dim=6)], ids=name_of)
def test_deferred_steps_equal_a_step_of_every_row(model, request):
    log = small_log()
    deferred = train(model, log, training=LONG).scorer
    request.getfixturevalue("without_loops")
    dense = train(model, log, training=LONG).scorer
    for name in ("users", "items"):
        found, expected = getattr(deferred, name), getattr(dense, name)
        # Float32 rounding of the first steps alone makes a difference of 1e-4.
        assert np.sqrt(np.mean((found - expected) ** 2)) < 3e-4 * expected.std()


@pytest.mark.parametrize("model", [BPR(dim=70), LightGCN(dim=6)], ids=name_of)
def test_the_number_of_threads_does_not_change_a_digit(model, monkeypatch):
    monkeypatch.setattr("calibrank.models.cpu._MANY_PRODUCTS", 0)
    one, *others = [
        train(model, small_log(), training=replace(SETTINGS, threads=threads)).scorer
        for threads in (1, 2, 3, 8)
    ]
    for other in others:
        np.testing.assert_array_equal(one.users, other.users)
        np.testing.assert_array_equal(one.items, other.items)


# ---- seeds ----


@pytest.mark.parametrize("model", SMALL, ids=name_of)
def test_the_same_seed_gives_the_same_model(model):
    log = small_log()
    first = train(model, log, training=SETTINGS, seed=1).scorer
    again = train(model, log, training=SETTINGS, seed=1).scorer
    other = train(model, log, training=SETTINGS, seed=2).scorer
    np.testing.assert_array_equal(first.users, again.users)
    assert not np.array_equal(first.users, other.users)


def test_a_generator_can_be_the_seed():
    log = small_log()
    first = train(BPR(dim=4), log, training=SETTINGS, seed=np.random.default_rng(7))
    again = train(BPR(dim=4), log, training=SETTINGS, seed=np.random.default_rng(7))
    by_number = train(BPR(dim=4), log, training=SETTINGS, seed=first.seed)
    np.testing.assert_array_equal(first.scorer.users, again.scorer.users)
    np.testing.assert_array_equal(first.scorer.users, by_number.scorer.users)


# ---- what each model guarantees ----


def test_ubpr_with_propensity_1_equals_bpr():
    log = small_log()
    bpr = train(BPR(dim=6), log, training=SETTINGS).scorer
    unweighted = train(UBPR(dim=6, propensity=Uniform(1.0)), log, training=SETTINGS).scorer
    np.testing.assert_array_equal(bpr.users, unweighted.users)
    weighted = train(UBPR(dim=6), log, training=SETTINGS).scorer
    assert not np.array_equal(bpr.users, weighted.users)


def test_cml_vectors_stay_in_the_unit_ball():
    settings = Training(epochs=30, learning_rate=0.1, batch=8)
    scorer = train(CML(dim=6), small_log(), training=settings).scorer
    norms = np.linalg.norm(np.concatenate([scorer.users, scorer.items]), axis=1)
    assert norms.max() <= 1 + 1e-6
    assert norms.max() > 0.99  # without the constraint some would be outside


@pytest.mark.parametrize("model", MODELS.values(), ids=name_of)
def test_training_learns_the_preferences(model):
    rng = np.random.default_rng(0)
    user_vectors = rng.standard_normal((60, 2))
    item_vectors = rng.standard_normal((40, 2))
    liked = user_vectors @ item_vectors.T > 1.2
    kept, held_out = RandomSplit().divide(Interactions(*np.nonzero(liked), None, 60, 40))
    settings = Training(epochs=150, learning_rate=0.01)
    trained = train(replace(model, dim=16), kept, held_out, settings)
    scores = trained.scorer.score_all(np.arange(60))
    assert scores[liked].mean() > scores[~liked].mean() + scores.std()
    epochs, ndcg = zip(*trained.history, strict=True)
    assert trained.best_epoch == epochs[int(np.argmax(ndcg))]
    assert max(ndcg) > 0.2


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("n_items", [ITEMS, 600])
def test_validation_is_ndcg_over_all_items_without_training_positives(n_items, loops, request):
    if not loops:
        request.getfixturevalue("without_loops")
    rng = np.random.default_rng(1)
    popular = rng.random(n_items) ** 2  # so that the first items decide about many positives
    liked = rng.random((USERS, n_items)) < 0.6 * popular
    kept, held_out = RandomSplit(fraction=0.4, at_least=2).divide(
        Interactions(*np.nonzero(liked), None, USERS, n_items)
    )
    model = BPR(dim=6)
    scorer = train(model, kept, training=SETTINGS).scorer
    trained = Positives.of(kept)
    vectors = torch.from_numpy(scorer.users), torch.from_numpy(scorer.items)
    users, items = all_pairs(USERS, n_items)
    ranked = np.isin(users, held_out.users) & ~trained.has(users, items)
    users, items = users[ranked], items[ranked]
    labels = Positives.of(held_out).has(users, items).astype(float)
    expected = NDCG(3)(scorer.score(users, items), labels, users=users)
    found = Validation.of(held_out, trained, 3, "cpu").ndcg(model, *vectors, {})
    assert 0.1 < expected < 0.9
    assert found == pytest.approx(expected, rel=1e-6)


def test_graph_edges_are_normalized_by_both_degrees():
    log = small_log()
    graph = Graph.of(log, 1)
    degree = np.bincount(np.concatenate([log.users, log.items + USERS]), minlength=USERS + ITEMS)
    user, item = log.users[4], log.items[4] + USERS
    assert graph.matrix[user, item] == pytest.approx(1 / np.sqrt(degree[user] * degree[item]))
    assert graph.matrix[item, user] == graph.matrix[user, item]
    identity = torch.eye(USERS + ITEMS, dtype=torch.float32)
    expected = (np.eye(USERS + ITEMS) + graph.matrix.toarray()) / 2
    np.testing.assert_allclose(graph.propagate(identity).numpy(), expected, rtol=1e-6)


# ---- checkpoints ----


class StoppedError(Exception):
    """Ends a training run as a signal would."""


def train_with_checkpoint(model, checkpoint, progress):
    """Train on a log large enough for many batches; the checkpoint is saved after every epoch."""
    rng = np.random.default_rng(0)
    log = Interactions(*np.nonzero(rng.random((200, 50)) < 0.2), None, 200, 50)
    kept, held_out = RandomSplit().divide(log)
    training = Training(epochs=14, checkpoint_every=0)
    return train(MODELS[model], kept, held_out, training, checkpoint=checkpoint, progress=progress)


def stop_with_an_error(model, checkpoint):
    def stop(status):
        if status.epoch == 5:
            raise StoppedError

    with pytest.raises(StoppedError):
        train_with_checkpoint(model, checkpoint, stop)


def stop_by_a_kill(model, checkpoint):
    code = (
        "import os\n"
        "from tests.models.test_models import train_with_checkpoint\n"
        "stop = lambda status: status.epoch == 5 and os.kill(os.getpid(), 9)\n"
        f"train_with_checkpoint({model!r}, {str(checkpoint)!r}, stop)\n"
    )
    child = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT)
    assert child.returncode != 0


# One kill suffices: what differs between models is what a checkpoint holds.
@pytest.mark.parametrize(
    ("model", "stop"),
    [("BPR", stop_by_a_kill), ("NCF", stop_with_an_error), ("LightGCN", stop_with_an_error)],
)
def test_a_stopped_run_continues_and_gives_the_same_result(tmp_path, model, stop):
    stop(model, tmp_path / "stopped")
    epochs = []
    resumed = train_with_checkpoint(
        model, tmp_path / "stopped", lambda status: epochs.append(status.epoch)
    )
    assert epochs[0] >= 5  # it did not start again
    uninterrupted = train_with_checkpoint(model, tmp_path / "whole", None)
    assert resumed.best_epoch == uninterrupted.best_epoch
    np.testing.assert_array_equal(resumed.scorer.users, uninterrupted.scorer.users)
    np.testing.assert_array_equal(resumed.scorer.items, uninterrupted.scorer.items)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    file = tmp_path / "checkpoint"
    settings = Training(epochs=2, checkpoint_every=0)
    train(BPR(dim=4), small_log(), training=settings, checkpoint=file)
    with pytest.raises(DataError, match="must be of the same run"):
        train(BPR(dim=5), small_log(), training=settings, checkpoint=file)
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match=r"must be a checkpoint.*Delete it to start again"):
        train(BPR(dim=4), small_log(), training=settings, checkpoint=file)


# ---- settings and progress ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BPR(dim=0), "dim must be a whole number, 1 or more, got 0"),
        (lambda: CML(margin=0), "margin must be a finite number, above 0, got 0"),
        (lambda: LightGCN(layers=0), "layers must be a whole number, 1 or more, got 0"),
        (lambda: Training(batch=0), "batch must be a whole number, 1 or more, got 0"),
        (lambda: Training(learning_rate=0), "learning_rate must be .*above 0, got 0"),
        (lambda: Training(weight_decay=-1), "weight_decay must be .*0 or more, got -1"),
        (lambda: Training(device="tpu"), "device must be cpu or cuda, got 'tpu'"),
        (
            lambda: train(BPR(), Interactions([0], [0], [0])),
            "positives must hold at least one positive",
        ),
        (lambda: train(BPR(), Interactions(["a"], ["b"])), "users must be .*numbers below 1"),
    ],
)
def test_invalid_settings_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_progress_is_reported_after_every_epoch():
    reports = []
    train(BPR(dim=4), small_log(), training=Training(epochs=3), progress=reports.append)
    found = [(status.epoch, status.epochs, status.ndcg) for status in reports]
    assert found == [(1, 3, None), (2, 3, None), (3, 3, None)]


# ---- GPU ----


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error():
    with pytest.raises(DataError, match="device cuda must be available, got no GPU"):
        train(BPR(), small_log(), training=Training(device="cuda"))


@pytest.mark.gpu
def test_a_run_on_a_gpu_continues_from_its_checkpoint(tmp_path):
    log, file = small_log(), tmp_path / "checkpoint"
    short = Training(epochs=3, batch=16, device="cuda", checkpoint_every=0)
    train(NCF(dim=6), log, training=short, checkpoint=file)
    longer = replace(short, epochs=6)
    resumed = train(NCF(dim=6), log, training=longer, checkpoint=file).scorer
    uninterrupted = train(NCF(dim=6), log, training=longer).scorer
    np.testing.assert_allclose(resumed.users, uninterrupted.users, rtol=1e-3, atol=1e-5)


def test_running_out_of_gpu_memory_is_explained(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 8 * 2**30))
    message = r"must fit in the GPU's memory, got 1\.0 of 8\.0 GiB free\. Lower dim or batch"
    with pytest.raises(FitError, match=message), explain_out_of_memory():
        raise torch.cuda.OutOfMemoryError


def test_a_checkpoint_with_changed_content_is_refused(tmp_path):
    file = tmp_path / "checkpoint"
    settings = Training(epochs=2, checkpoint_every=0)
    train(BPR(dim=4), small_log(), training=settings, checkpoint=file)
    intact = file.read_bytes()
    middle = len(intact) // 2
    file.write_bytes(intact[:middle] + bytes([intact[middle] ^ 1]) + intact[middle + 1 :])
    with pytest.raises(DataError, match=r"must be a checkpoint, got Bad CRC-32"):
        train(BPR(dim=4), small_log(), training=settings, checkpoint=file)
    delete_if_damaged(file)
    assert not file.exists()
