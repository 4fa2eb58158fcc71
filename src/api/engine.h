// The states behind qinfer_engine and qinfer_session.
#pragma once

#include <memory>

#include "api/model.h"
#include "api/task.h"
#include "engine/engine.h"
#include "qinfer/generate.h"

namespace qinfer::api {

class EngineState {
 public:
  EngineState(std::shared_ptr<ModelState> of, std::shared_ptr<engine::Engine> made)
      : model(std::move(of)), engine(std::move(made)) {}
  std::shared_ptr<ModelState> model;  // outlives the engine
  std::shared_ptr<engine::Engine> engine;
};

class SessionState {
 public:
  SessionState(std::shared_ptr<EngineState> of, std::shared_ptr<engine::Session> made)
      : engine(std::move(of)), session(std::move(made)), exclusive(std::make_shared<Exclusive>()) {}
  std::shared_ptr<EngineState> engine;  // outlives the session
  std::shared_ptr<engine::Session> session;
  std::shared_ptr<Exclusive> exclusive;
};

}  // namespace qinfer::api

struct qinfer_engine {
  qinfer_engine(std::shared_ptr<qinfer::api::RuntimeState> owner,
                std::shared_ptr<qinfer::api::EngineState> made)
      : header(qinfer::api::HandleTraits<qinfer_engine>::kMagic),
        runtime(std::move(owner)),
        state(std::move(made)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::EngineState> state;
};

struct qinfer_session {
  qinfer_session(std::shared_ptr<qinfer::api::RuntimeState> owner,
                 std::shared_ptr<qinfer::api::SessionState> made)
      : header(qinfer::api::HandleTraits<qinfer_session>::kMagic),
        runtime(std::move(owner)),
        state(std::move(made)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::SessionState> state;
};
