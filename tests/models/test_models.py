"""Models: the fast trainer against a slow one written differently, and what each model promises."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import calibrank as cr
from calibrank.data import Positives, RandomSplit
from calibrank.errors import DataError, FitError
from calibrank.models import BPR, CML, NCF, UBPR, LightGCN, Training, train, train_seeds
from calibrank.models.engines.base import plain_words
from calibrank.models.graph import Graph
from calibrank.models.sampling import Sampler
from calibrank.models.training import _start
from calibrank.models.validation import Validation
from calibrank.propensity import Uniform
from calibrank.registry import models
from calibrank.scorers import Distance, InnerProduct, NeuMF, SavedModel, load_model
from calibrank.tables import Index, Interactions

SMALL = tuple(type(model)(dim=6) for model in models().values())
USERS, ITEMS = 17, 11
SETTINGS = Training(epochs=3, batch=16, learning_rate=0.01, weight_decay=0.01)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")


def small_log(seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    liked = rng.random((USERS, ITEMS)) < share
    liked[:, 0] = False
    liked[np.arange(USERS), 1 + np.arange(USERS) % (ITEMS - 1)] = True
    return Interactions(*np.nonzero(liked), None, USERS, ITEMS)


def name_of(model):
    return model.name


def dense_reference(model, log, training, seed):
    """The same steps in float64: a dense adjacency, one triple at a time, and torch's own Adam."""
    sampler = Sampler.of(log, model.importance(log), (seed,), training.batch)
    start = _start(model, USERS + ITEMS, (seed,))
    table = torch.tensor(start.pop("table"), dtype=torch.float64, requires_grad=True)
    weights = {
        k.split(".")[1]: torch.tensor(v[0], dtype=torch.float64, requires_grad=True)
        for k, v in start.items()
    }
    optimizer = torch.optim.Adam(
        [table, *weights.values()], lr=training.learning_rate, weight_decay=training.weight_decay
    )
    spread = torch.eye(USERS + ITEMS, dtype=torch.float64)
    if isinstance(model, LightGCN):
        links = np.zeros((USERS + ITEMS, USERS + ITEMS))
        links[log.users, log.items + USERS] = links[log.items + USERS, log.users] = 1
        degree = np.maximum(links.sum(1), 1)
        near = torch.tensor(links / np.sqrt(degree[:, None] * degree[None, :]))
        spread = sum(torch.matrix_power(near, hop) for hop in range(model.layers + 1)) / (
            model.layers + 1
        )
    for number in range(training.epochs):
        epoch = sampler.draw(number)
        for rows, worth in zip(epoch.rows, epoch.importance, strict=True):
            vectors = spread @ table
            loss = torch.zeros((), dtype=torch.float64)
            for u, i, j, w in zip(*rows[:, 0], worth[0], strict=True):
                loss = loss + float(w) * one_loss(
                    model, vectors[u], vectors[i], vectors[j], weights
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if isinstance(model, CML):
                with torch.no_grad():
                    for row in table:
                        row /= max(1.0, float(row.norm()))
    return (spread @ table).detach().numpy(), {k: v.detach().numpy() for k, v in weights.items()}


def one_loss(model, u, i, j, weights):
    if isinstance(model, CML):
        return torch.clamp(model.margin + torch.dist(u, i) ** 2 - torch.dist(u, j) ** 2, min=0)
    if isinstance(model, NCF):
        return -torch.log(torch.sigmoid(neumf(u, i, weights))) - torch.log(
            1 - torch.sigmoid(neumf(u, j, weights))
        )
    return -torch.log(torch.sigmoid(torch.dot(u, i) - torch.dot(u, j)))


def neumf(u, i, weights):
    half = len(u) // 2
    inner = torch.cat([weights["from_user"], weights["from_item"]]).T
    hidden = torch.relu(inner @ torch.cat([u[half:], i[half:]]) + weights["first_bias"][0])
    hidden = torch.relu(weights["second"].T @ hidden + weights["second_bias"][0])
    last = torch.cat([weights["last_product"], weights["last_network"]])[:, 0]
    return last @ torch.cat([u[:half] * i[:half], hidden]) + weights["last_bias"][0, 0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize(
    "model", [*SMALL, LightGCN(dim=6, layers=1), LightGCN(dim=6, layers=3)], ids=repr
)
def test_fast_training_takes_the_steps_of_dense_adam(model, device):
    log = small_log()
    done = train(model, log, training=replace(SETTINGS, device=device), seed=5)
    vectors, weights = dense_reference(model, log, SETTINGS, 5)
    np.testing.assert_allclose(
        np.concatenate([done.scorer.users, done.scorer.items]), vectors, rtol=2e-3, atol=2e-5
    )
    for name, values in weights.items():
        np.testing.assert_allclose(done.scorer.weights[name], values, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("model", SMALL, ids=name_of)
def test_seeds_together_are_seeds_apart(model):
    log = small_log()
    kept, held = RandomSplit(fraction=0.3, at_least=2).divide(log)
    together = train_seeds(model, kept, [3, 4, 9], held, SETTINGS)
    for one in together:
        alone = train(model, kept, held, SETTINGS, seed=one.seed)
        assert alone.best_epoch == one.best_epoch
        np.testing.assert_allclose(alone.scorer.users, one.scorer.users, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(alone.scorer.items, one.scorer.items, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", SMALL, ids=name_of)
def test_a_seed_decides_all(model):
    log = small_log()
    first, again, other = (
        train(model, log, training=SETTINGS, seed=seed).scorer for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.users, again.users)
    assert not np.array_equal(first.users, other.users)


def test_ubpr_with_propensity_one_is_bpr():
    log = small_log()
    plain = train(BPR(dim=6), log, training=SETTINGS).scorer
    unbiased = train(UBPR(dim=6, propensity=Uniform(1.0)), log, training=SETTINGS).scorer
    np.testing.assert_array_equal(plain.users, unbiased.users)
    weighted = train(UBPR(dim=6), log, training=SETTINGS).scorer
    assert not np.array_equal(plain.users, weighted.users)


def test_cml_stays_in_the_unit_ball():
    done = train(
        CML(dim=6), small_log(), training=Training(epochs=30, learning_rate=0.1, batch=8)
    ).scorer
    lengths = np.linalg.norm(np.concatenate([done.users, done.items]), axis=1)
    assert lengths.max() <= 1 + 1e-6
    assert lengths.max() > 0.99  # the ball was felt


def test_training_learns_who_likes_what():
    rng = np.random.default_rng(0)
    people, things = rng.standard_normal((60, 2)), rng.standard_normal((40, 2))
    liked = people @ things.T > 1.2
    log = Interactions(*np.nonzero(liked), None, 60, 40)
    kept, held = RandomSplit().divide(log)
    for model in (BPR(dim=16), NCF(dim=16), CML(dim=16), UBPR(dim=16), LightGCN(dim=16)):
        done = train(model, kept, held, Training(epochs=150, learning_rate=0.01))
        scores = done.scorer.score_all(np.arange(60))
        assert scores[liked].mean() > scores[~liked].mean() + scores.std()
        (first, low), (_, best) = done.history[0], max(done.history, key=lambda look: look[1])
        assert best >= low
        assert first <= done.best_epoch <= 150


def test_validation_is_ndcg_of_whole_lists():
    log = small_log()
    kept, held = RandomSplit(fraction=0.4, at_least=2).divide(log)
    scorer = train(BPR(dim=6), kept, training=SETTINGS).scorer
    seen = Positives.of(kept)
    validation = Validation.of(held, seen, 3, BPR(dim=6), "cpu")
    value = validation.ndcg(
        BPR(dim=6), torch.from_numpy(scorer.users), torch.from_numpy(scorer.items), {}
    )
    users, items = (
        part.ravel() for part in np.meshgrid(np.unique(held.users), np.arange(ITEMS), indexing="ij")
    )
    fresh = ~seen.has(users, items)
    users, items = users[fresh], items[fresh]
    wanted = Positives.of(held).has(users, items).astype(float)
    assert value == pytest.approx(
        cr.NDCG(3)(scorer.score(users, items), wanted, users=users), rel=1e-6
    )


def test_graph_rows_weigh_by_degrees():
    log = small_log()
    graph = Graph.of(log, 1)
    degree = np.bincount(np.concatenate([log.users, log.items + USERS]), minlength=USERS + ITEMS)
    u, i = log.users[4], log.items[4] + USERS
    assert graph.matrix[u, i] == pytest.approx(1 / np.sqrt(degree[u] * degree[i]))
    assert graph.matrix[i, u] == graph.matrix[u, i]
    one = torch.eye(USERS + ITEMS, dtype=torch.float32)
    np.testing.assert_allclose(
        graph.spread(one).numpy(), (np.eye(USERS + ITEMS) + graph.matrix.toarray()) / 2, rtol=1e-6
    )


@pytest.mark.parametrize("kind", [InnerProduct, Distance, NeuMF])
def test_scores_of_pairs_are_cells_of_the_grid(kind):
    rng = np.random.default_rng(0)
    weights = NCF(dim=4).first_weights(rng) if kind is NeuMF else {}
    scorer = kind(rng.standard_normal((5, 8)), rng.standard_normal((7, 8)), weights)
    users, items = (part.ravel() for part in np.meshgrid(np.arange(5), np.arange(7), indexing="ij"))
    np.testing.assert_allclose(
        scorer.score(users, items).reshape(5, 7), scorer.score_all(np.arange(5)), rtol=1e-10
    )


def test_recommendations_are_the_best_that_are_not_hidden():
    rng = np.random.default_rng(0)
    scorer = InnerProduct(rng.standard_normal((6, 3)), rng.standard_normal((9, 3)), {})
    hide = (np.array([0] * 8 + [2]), np.array([*range(8), 4]))
    items, scores = scorer.recommend(np.arange(6), 4, hide)
    whole = scorer.score_all(np.arange(6))
    whole[hide] = -np.inf
    np.testing.assert_array_equal(items[1:], np.argsort(-whole, axis=1)[1:, :4])
    np.testing.assert_array_equal(items[0], [8, -1, -1, -1])
    assert np.isneginf(scores[0, 1:]).all()
    with pytest.raises(DataError, match=r"k must be 1 to the 9 items there are, got 10"):
        scorer.recommend([0], 10)


@pytest.mark.parametrize(
    "names", [Index.of(range(5, 10)), Index.of(["añé", "b", "c", "d", "🎸"])], ids=["ints", "texts"]
)
def test_a_model_comes_back_from_disk(tmp_path, names):
    rng = np.random.default_rng(0)
    scorer = NeuMF(
        *(rng.standard_normal((5, 8)).astype("f4") for _ in range(2)), NCF(dim=4).first_weights(rng)
    )
    SavedModel(scorer, names, names, {"model": "NCF"}).save(tmp_path)
    back = load_model(tmp_path)
    np.testing.assert_array_equal(back.scorer.score_all(range(5)), scorer.score_all(range(5)))
    np.testing.assert_array_equal(back.users.names, names.names)
    assert back.about == {"model": "NCF"}
    with (tmp_path / "weights.safetensors").open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"xyz")
    with pytest.raises(DataError, match=r"must be the file saved with model\.json"):
        load_model(tmp_path)
    with pytest.raises(DataError, match=r"must be a saved model, got no model\.json"):
        load_model(tmp_path / "nowhere")


KILLED = """
import sys, numpy as np
from calibrank.data import RandomSplit
from calibrank.models import *
from calibrank.tables import Interactions
rng = np.random.default_rng(0)
log = Interactions(*np.nonzero(rng.random((200, 50)) < 0.2), None, 200, 50)
kept, held = RandomSplit().divide(log)
model = models()[sys.argv[1]]
tell = lambda moment: print(moment.epoch, flush=True)
done = train(model, kept, held, Training(epochs=14, checkpoint_every=0), checkpoint=sys.argv[2], progress=tell)
np.savez(sys.argv[3], users=done.scorer.users, items=done.scorer.items, best=done.best_epoch)
"""


@pytest.mark.parametrize("model", ["BPR", "NCF", "LightGCN"])
def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, model):
    def command(folder):
        return [
            sys.executable,
            "-c",
            KILLED,
            model,
            str(tmp_path / folder / "checkpoint"),
            str(tmp_path / f"{folder}.npz"),
        ]

    child = subprocess.Popen(command("killed"), stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if int(line) == 5:
            os.kill(child.pid, signal.SIGKILL)
            break
    child.wait()
    child.stdout.close()
    assert not (tmp_path / "killed.npz").exists()
    again = subprocess.run(command("killed"), capture_output=True, text=True, check=True)
    assert int(again.stdout.split()[0]) >= 5  # it did not start anew
    subprocess.run(command("whole"), capture_output=True, check=True)
    killed, whole = (np.load(tmp_path / f"{name}.npz") for name in ("killed", "whole"))
    for name in whole.files:
        np.testing.assert_array_equal(killed[name], whole[name])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    file = tmp_path / "checkpoint"
    train(BPR(dim=4), small_log(), training=Training(epochs=2, checkpoint_every=0), checkpoint=file)
    with pytest.raises(DataError, match="must be of the same run"):
        train(BPR(dim=5), small_log(), training=Training(epochs=2), checkpoint=file)
    file.write_bytes(b"not a checkpoint")
    with pytest.raises(DataError, match=r"must be a checkpoint.*Delete it to start anew"):
        train(BPR(dim=4), small_log(), training=Training(epochs=2), checkpoint=file)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BPR(dim=0), "dim must be 1 or more, got 0"),
        (lambda: CML(margin=0), "margin must be above 0, got 0"),
        (lambda: LightGCN(layers=0), "layers must be 1 or more, got 0"),
        (lambda: Training(batch=0), "batch must be 1 or more, got 0"),
        (lambda: Training(learning_rate=0), "learning_rate must be above 0"),
        (lambda: Training(device="tpu"), "device must be cpu or cuda, got 'tpu'"),
        (lambda: train_seeds(BPR(), small_log(), []), "seeds must name at least one"),
        (
            lambda: train(BPR(), Interactions([0], [0], [0])),
            "positives must hold at least one positive",
        ),
        (lambda: train(BPR(), Interactions(["a"], ["b"])), "users must be numbers below 1"),
    ],
)
def test_settings_that_make_no_sense(make, words):
    with pytest.raises(DataError, match=words):
        make()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_plainly():
    with pytest.raises(
        DataError, match=r"device cuda must be there, got no GPU that torch can use"
    ):
        train(BPR(), small_log(), training=Training(device="cuda"))


@needs_gpu
@pytest.mark.parametrize("model", SMALL, ids=name_of)
def test_seeds_together_are_seeds_apart_on_a_gpu(model):
    settings = replace(SETTINGS, device="cuda")
    for one in train_seeds(model, small_log(), [3, 4, 9], None, settings):
        alone = train(model, small_log(), None, settings, seed=one.seed)
        np.testing.assert_allclose(alone.scorer.users, one.scorer.users, rtol=1e-3, atol=1e-5)


@needs_gpu
def test_a_gpu_run_resumes(tmp_path):
    log, file = small_log(), tmp_path / "checkpoint"
    quick = Training(epochs=3, batch=16, device="cuda", checkpoint_every=0)
    train(NCF(dim=6), log, training=quick, checkpoint=file)
    longer = Training(epochs=6, batch=16, device="cuda", checkpoint_every=0)
    resumed = train(NCF(dim=6), log, training=longer, checkpoint=file)
    whole = train(NCF(dim=6), log, training=longer)
    np.testing.assert_allclose(resumed.scorer.users, whole.scorer.users, rtol=1e-3, atol=1e-5)


def test_a_full_gpu_is_said_plainly(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 8 * 2**30))
    with (
        pytest.raises(
            FitError,
            match=r"must fit in the GPU's memory, got 1\.0 of 8\.0 GiB free\. Train fewer seeds",
        ),
        plain_words(),
    ):
        raise torch.cuda.OutOfMemoryError


def test_progress_is_told():
    moments = []
    train(BPR(dim=4), small_log(), training=Training(epochs=3), progress=moments.append)
    assert [(moment.epoch, moment.epochs, moment.ndcg) for moment in moments] == [
        (1, 3, ()),
        (2, 3, ()),
        (3, 3, ()),
    ]
