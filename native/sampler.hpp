// Moments of random sequences by Bartlett's decomposition, at a cost that does not depend on n.
//
// X = Q R with R upper triangular has S = X'X = A A', A = R', A_ii^2 ~ chi2(n - i), A_ij ~ N(0, 1);
// with t = Q'y = A'w + sigma z:  X'y = A t  and  y'y = |t|^2 + sigma^2 chi2(n - d). For n < d, A is d x n.
#pragma once
#include "tasks.hpp"

namespace ridgeformer {
namespace {

struct Sampler final : Tasks {
    // See Diag::lay_out.
    template <class Take>
    static void lay_out(const Law<T> &law, Take &&take) {
        const Size d = law.dim, draws = (d + 3) * kBlock, vector = sizeof(V);
        take(&Sampler::A, d * d);
        take(&Sampler::N, d * d);
        take(&Sampler::g, d);
        take(&Sampler::w, d);
        take(&Sampler::z, d);
        take(&Sampler::t, d);
        take(&Sampler::u, d);
        take(&Sampler::H, law.task_factor ? d * d : 0);
        take(&Sampler::cov, law.own_metric || law.covariance == Covariance::factors ? d * (d + 1) / 2 : 0);
        take(&Sampler::loadings, d * law.factors);
        take(&Sampler::chis, draws * Size(sizeof(T)) / vector);  // kBlock is a multiple of a vector's lanes
        take(&Sampler::retries, (draws * Size(sizeof(std::int32_t)) + vector - 1) / vector);
    }
    static std::size_t vectors(const Law<T> &law) { return count_vectors<Sampler>(law); }

    Sampler(V *memory, const Law<T> &law_, bool ones_, Watch &watch_) : Tasks(law_, ones_, watch_) {
        lay_out(law, placing(*this, memory));
    }

    // The normals of one group: A below its diagonal row by row, then g, then z. Columns beyond a lane's own number of
    // tokens are zero.
    void draw_normals(Words sequence, V tokens) {
        Normals normal{law.key, sequence, Use::normals};
        for (Size row = 1; row < d; ++row)
            for (Size column = 0; column < (row < m ? row : m); ++column) A[row * d + column] = normal.next_inlined();
        for (Size i = 0; i < d; ++i) g[i] = normal.next_inlined();
        for (Size i = 0; i < m; ++i) z[i] = normal.next_inlined();
        for (Size column = counted(law.shortest); column < m; ++column) {
            const auto there = tokens > T(column + law.standardised);
            z[column] = there ? z[column] : V{};
            for (Size row = column + 1; row < d; ++row) A[row * d + column] = there ? A[row * d + column] : V{};
        }
    }

    // The further coordinates of tokens: their row of the Gram matrix, whose y stands in row `last`. The sum of all tokens is
    // sqrt(n) times the coordinates of a random unit vector in the basis in which A and t are given.
    void add_coordinates(Words sequence, const Layout &layout, V tokens, V sigma, int group, Size last, V *G) {
        for (Size row = d; row < last; ++row)
            for (Size j = 0; j <= row; ++j) G[packed(row, j)] = V{};
        for (Size row = d; row < last; ++row) G[packed(last, row)] = V{};
        if (!ones) return;
        Normals normal{law.key, sequence, Use::ones};
        const V sign = normal.next();
        V length = chi_of(d + 1, group), along{};
        for (Size k = 0; k < m; ++k) {
            u[k] = normal.next();
            if (law.standardised) u[k] = V{};
            if (k >= counted(law.shortest)) u[k] = tokens > T(k + law.standardised) ? u[k] : V{};
            length += u[k] * u[k];
        }
        const V inverse = T(1) / square_root(length);
        for (Size k = 0; k < m; ++k) {
            u[k] *= inverse;
            along += u[k] * t[k];
        }
        const V beyond = square_root(chi_of(d + 1, group)) * inverse * square_root(chi_of(d, group));
        along += sigma * beyond * sign / square_root(sign * sign + chi_of(d + 2, group));
        const V root = square_root(tokens);
        const V c = layout.coordinate == Coordinate::constant ? splat(T(1)) : square_root(T(kReference) / tokens);
        for (Size i = 0; i < d; ++i) {
            V sum{};
            for (Size k = 0; k < width(i); ++k) sum += A[i * d + k] * u[k];
            G[packed(d, i)] = c * root * sum;
        }
        G[packed(d, d)] = c * c * tokens;
        G[packed(last, d)] = c * root * along;
    }

    void draw_group(std::uint32_t first, int group, Size offset, const double *sigmas, int count, const Layout &layout,
                    const Block &block) {
        const Size last = block.dim;  // the row of y
        V *G = block.gram(group), *metric = block.metric(group);
        V sigma{}, tokens = splat(T(n));
        for (int k = 0; k < kLanes; ++k) {
            const int s = group * kLanes + k;
            sigma[k] = s < count ? T(sigmas[s]) : T(0);
            if (law.counts && s < count) tokens[k] = T(law.counts[offset + s]);
        }
        const Words sequence = lanes(first + std::uint32_t(group * kLanes));
        draw_normals(sequence, tokens);
        for (Size i = 0; i < m; ++i) A[i * d + i] = square_root(chi_of(i, group));
        shape_features(sequence, tokens);
        make_task(law.choice ? law.choice + offset + group * kLanes : nullptr, count - group * kLanes);
        V squared{};
        for (Size k = 0; k < m; ++k) {
            V x = sigma * z[k];
            for (Size i = dense ? 0 : k; i < d; ++i) x += A[i * d + k] * w[i];
            t[k] = x;
            squared += x * x;
        }
        squared += sigma * sigma * chi_of(d, group);
        for (Size i = 0; i < d; ++i) {
            if (counter(i).stop(i / 2)) return;
            V a{};
            for (Size k = 0; k < width(i); ++k) a += A[i * d + k] * t[k];
            G[packed(last, i)] = a;
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = 0; k < width(j); ++k) x += A[i * d + k] * A[j * d + k];
                G[packed(i, j)] = x;
            }
            block.task(group)[i] = w[i];
        }
        G[packed(last, last)] = squared;
        if (last > d) add_coordinates(sequence, layout, tokens, sigma, group, last, G);
        if (!law.pool) ridge(G, sigma, tokens, block.ridge(group));
        else for (Size i = 0; i < d; ++i) block.ridge(group)[i] = w[i];
        for (Size i = d; i < last; ++i) block.task(group)[i] = block.ridge(group)[i] = V{};
        if (layout.mean) {
            const V share = T(1) / tokens;
            for (Size i = 0; i < block.cells; ++i) G[i] *= share;
        }
        if (!metric) return;
        for (Size i = 0; i < last; ++i)
            for (Size j = 0; j <= i; ++j) {
                V &x = metric[packed(i, j)];
                if (i >= d) x = splat(T(i == d && j == d));  // read only if the coordinate is a constant
                else x = law.metric ? splat(law.metric[i * d + j]) : cov[packed(i, j)];
            }
    }
};

void draw(void *scratch, const Law<T> &law, const Layout &layout, std::int64_t first, std::int64_t offset, int count,
          const double *sigma, Watch &watch) {
    const Block block(scratch, law.dim + layout.extra(), law.metric || law.own_metric);
    Sampler sampler(block.end(), law, layout.coordinate != Coordinate::none, watch);
    sampler.draw_chi(std::uint32_t(first), law.counts ? law.counts + offset : nullptr, count);
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(watch, 16 * law.dim * law.dim)) return;  // of which the random numbers are most
        sampler.draw_group(std::uint32_t(first), group, offset, sigma, count, layout, block);
    }
    clear_lanes(block, count);
}

}  // namespace
}  // namespace ridgeformer
